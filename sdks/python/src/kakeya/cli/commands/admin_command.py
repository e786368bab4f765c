"""The frame of the operators' commands: `kakeya NOUN VERB`, over the router's AdminService."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kakeya.cli.commands.admin_calls import AdminCalls
from kakeya.cli.commands.cure import explain
from kakeya.cli.flags import connection_flags
from kakeya.cli.output.table import printable
from kakeya.errors import KakeyaError

EXIT_FAILURE = 1
EXIT_USAGE = 2
_SCOPE = "admin"


@dataclass(frozen=True)
class Verb:
    """One subcommand.

    Attributes:
        add_flags: adds its own flags to its parser.
        run: prints what it did; returns the exit status or raises KakeyaError.
    """

    name: str
    summary: str
    add_flags: Callable[[argparse.ArgumentParser], None]
    run: Callable[[AdminCalls, argparse.Namespace], int]


def run(noun: str, summary: str, verbs: Sequence[Verb], argv: list[str]) -> int:
    """Runs the verb that `argv` names and returns the exit status."""
    flags = _parser(noun, summary, verbs).parse_args(argv)
    try:
        connection = connection_flags.read(flags)
    except connection_flags.BadConnectionFlag as error:
        return _fail(noun, str(error), EXIT_USAGE)
    verb: Verb = flags.verb
    try:
        with AdminCalls(connection) as admin:
            return verb.run(admin, flags)
    except KakeyaError as error:
        return _fail(noun, explain(error, connection, scope=_SCOPE), EXIT_FAILURE)


def each(noun: str, admin: AdminCalls, ids: Sequence[str], act: Callable[[str], str]) -> int:
    """Acts on each id and prints what `act` says; one that fails does not keep the others from their turn.

    Returns:
        The exit status: 1 where one failed.
    """
    status = 0
    for id_ in ids:
        try:
            print(act(id_), flush=True)
        except KakeyaError as error:
            status = _fail(noun, f"{id_}: {explain(error, admin.connection, scope=_SCOPE)}", EXIT_FAILURE)
    return status


def json_flag(parser: argparse.ArgumentParser) -> None:
    """--json of every list."""
    parser.add_argument("--json", action="store_true", help="print one JSON document, for programs")


def _parser(noun: str, summary: str, verbs: Sequence[Verb]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"kakeya {noun}",
        description=f"{summary.capitalize()}. Where the router asks for keys, it takes one with the scope {_SCOPE}.",
        epilog="Exit status: 0, 1 where the router refuses or does not answer, 2 for flags that make no sense.",
    )
    subparsers = parser.add_subparsers(metavar="VERB", required=True)
    for verb in verbs:
        subparser = subparsers.add_parser(verb.name, help=verb.summary, description=verb.summary.capitalize() + ".")
        verb.add_flags(subparser)
        connection_flags.add(subparser)
        subparser.set_defaults(verb=verb)
    return parser


def _fail(noun: str, message: str, status: int) -> int:
    print(f"kakeya {noun}: error: {printable(message)}", file=sys.stderr)
    return status
