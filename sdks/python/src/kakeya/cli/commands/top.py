"""`kakeya top`: sessions, workers and the queue on a terminal, while they change."""

import argparse
import sys

from kakeya.cli.commands.cure import explain
from kakeya.cli.flags import connection_flags
from kakeya.cli.output.table import printable
from kakeya.errors import MissingExtra

SUMMARY = "show what runs on a terminal, while it changes"
EXIT_FAILURE, EXIT_USAGE = 1, 2


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="kakeya top",
        description="Shows the sums, workers with their lanes, the queue and sessions, and follows what changes. A key "
        "with the scope admin sees everything, any other its tenant's sessions and the sums.",
        epilog="Keys: q quits, s sorts sessions by the next column, arrows move. Exit status: 0, 1 where the router "
        "refuses or does not answer any more, 2 for flags that make no sense.",
    )
    connection_flags.add(parser)
    flags = parser.parse_args(argv)
    try:
        connection = connection_flags.read(flags)
    except connection_flags.BadConnectionFlag as error:
        return _fail(str(error), EXIT_USAGE)
    if not sys.stdout.isatty():
        return _fail("this is no terminal; `kakeya sessions list --watch --json` is for programs", EXIT_USAGE)
    try:
        from kakeya.cli.top.top_app import TopApp
    except ImportError as error:
        return _fail(str(MissingExtra("kakeya top", "top")) if _is_missing(error) else str(error), EXIT_FAILURE)
    app = TopApp(connection)
    app.run()
    return 0 if app.error is None else _fail(explain(app.error, connection), EXIT_FAILURE)


def _is_missing(error: ImportError) -> bool:
    return (error.name or "").partition(".")[0] in ("rich", "textual")


def _fail(message: str, status: int) -> int:
    print(f"kakeya top: error: {printable(message)}", file=sys.stderr)
    return status
