"""`kakeya`: finds the subcommand and runs it."""

import sys
from importlib.metadata import version

from kakeya.cli.commands import commands
from kakeya.cli.commands.menu import EXIT_FAILURE, Menu
from kakeya.cli.output import streams

REQUIREMENTS = {
    "bench": "kakeya-bench",
    "demo": "kakeya-local",
    "doctor": "kakeya-local",
    "health": "kakeya-shared",
    "http": "kakeya-http-shim",
    "models": "kakeya-worker[torch]",
    "router": "kakeya-router",
    "run": "kakeya-local",
    "up": "kakeya-local",
    "worker": "kakeya-worker[torch]",
}
"""Which distribution brings a command that is not the SDK's own."""
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells say it


def main(argv: list[str] | None = None) -> int:
    """Runs one subcommand and returns the exit status of the process.

    What the system refuses, and no command has foreseen, is told in one line: a disk that is full, a folder that is
    gone, text that cannot be encoded. Python's development mode (PYTHONDEVMODE=1) shows where it came from.
    """
    words = sys.argv[1:] if argv is None else argv
    streams.prepare()
    try:
        try:
            return _run(words)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader (`| head`) has gone
        streams.give_up_output()
        return EXIT_FAILURE
    except (OSError, UnicodeError) as error:
        streams.give_up_output()
        if sys.flags.dev_mode:
            raise
        print(f"{' '.join(['kakeya', *words[:1]])}: error: {streams.reason(error)}", file=sys.stderr)
        return EXIT_FAILURE


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
        requirements=REQUIREMENTS,
    ).run(argv)
