"""`kakeya`: finds the subcommand and runs it."""

import difflib
import os
import sys
from importlib.metadata import EntryPoint, version

from kakeya.cli import commands

EXIT_FAILURE = 1
EXIT_USAGE = 2
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
    found = commands.find()
    match argv:
        case []:
            print(_help(found), file=sys.stderr)
            return EXIT_USAGE
        case ["-h" | "--help" | "help"]:
            print(_help(found))
            return 0
        case ["-V" | "--version"]:
            print(f"kakeya {version('kakeya')}")
            return 0
        case ["help", name, *_]:
            return _run([name, "--help"])
        case [name, *_] if name not in found:
            print(f"kakeya: {_unknown(name, list(found))}", file=sys.stderr)
            return EXIT_USAGE
    try:
        command = commands.load(found[argv[0]])
    except commands.BrokenCommand as error:
        print(f"kakeya {argv[0]}: {error}", file=sys.stderr)
        return EXIT_FAILURE
    return command.main(argv[1:])


def _help(found: dict[str, EntryPoint]) -> str:
    width = max(map(len, found), default=0)
    lines = [f"  {name:{width}}  {commands.summary(point)}" for name, point in found.items()]
    return "\n".join(
        [
            "usage: kakeya COMMAND [OPTIONS]",
            "",
            "LLM runtime with sessions on the server and bounded KV.",
            "",
            "commands:",
            *lines,
            "",
            "`kakeya COMMAND --help` describes a command, `kakeya --version` says the version.",
        ]
    )


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    cure = f"did you mean {close[0]!r}?" if close else "`kakeya --help` lists the commands"
    kind = "option" if name.startswith("-") else "command"
    return f"unknown {kind} {name!r}; {cure}"
