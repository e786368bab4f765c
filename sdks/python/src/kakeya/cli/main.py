"""`kakeya`: finds the subcommand and runs it."""

import os
import sys
from importlib.metadata import version

from kakeya.cli import commands
from kakeya.cli.menu import EXIT_FAILURE, Menu

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells say it


def main(argv: list[str] | None = None) -> int:
    """Runs one subcommand and returns the exit status of the process."""
    try:
        status = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever reads us (`| head`) has gone; the interpreter must not try to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE
    return status


def _run(argv: list[str]) -> int:
    if argv in (["-V"], ["--version"]):
        print(f"kakeya {version('kakeya')}")
        return 0
    return Menu(
        prog="kakeya",
        kind="command",
        kinds="commands",
        about="LLM runtime with sessions on the server and bounded KV.",
        closing="`kakeya COMMAND --help` describes a command, `kakeya --version` says the version.",
        entries=commands.find(),
    ).run(argv)
