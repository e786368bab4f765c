"""`kakeya bench compare`."""

import asyncio
import sys
from typing import TYPE_CHECKING

from kakeya.bench import extra, report_file
from kakeya.bench.compare.options import SUMMARY, Options, parse
from kakeya.bench.kv_bytes import ConfigError
from kakeya.bench.report_file import NotWritable
from kakeya.bench.verdict import EXIT_UNDECIDED, exit_status
from kakeya.cli.commands.cure import explain
from kakeya.cli.flags.connection_flags import BadConnectionFlag
from kakeya.cli.output.table import printable
from kakeya.errors import KakeyaError, MissingExtra
from kakeya.text.tokenizer_error import TokenizerError

if TYPE_CHECKING:
    from kakeya.bench.compare.report import Report

__all__ = ["SUMMARY", "main"]


def main(argv: list[str]) -> int:
    """Runs the bench and returns its exit status."""
    try:
        options = parse(argv)
        extra.require("kakeya bench compare")
        report_file.prepare(options.output)
        return _run(options)
    except KakeyaError as error:
        return _fail(explain(error, options.connection))
    except (BadConnectionFlag, ConfigError, MissingExtra, NotWritable, TokenizerError) as error:
        return _fail(str(error))


def _run(options: Options) -> int:
    # Not before: `kakeya bench --help` must not wait for what draws.
    from rich.console import Console

    from kakeya.bench.compare.run import run

    return _tell(*asyncio.run(run(options, Console(file=sys.stderr))))


def _tell(report: "Report", interrupted: int | None) -> int:
    from kakeya.bench.compare import output, summary

    output.write(report)
    summary.print_summary(report)
    return interrupted if interrupted is not None else exit_status(report.verdicts())


def _fail(message: str) -> int:
    print(f"kakeya bench compare: error: {printable(message)}", file=sys.stderr)
    return EXIT_UNDECIDED
