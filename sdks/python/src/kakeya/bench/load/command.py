"""`kakeya bench load`."""

import asyncio
import sys

from kakeya.bench import extra, report_file
from kakeya.bench.load.options import SUMMARY, Options, parse
from kakeya.bench.prompts import NoPrompts
from kakeya.bench.report_file import NotWritable
from kakeya.bench.verdict import EXIT_UNDECIDED, exit_status
from kakeya.cli.commands.cure import explain
from kakeya.cli.flags.connection_flags import BadConnectionFlag
from kakeya.cli.output.table import printable
from kakeya.errors import KakeyaError, MissingExtra
from kakeya.text.tokenizer_error import TokenizerError

__all__ = ["SUMMARY", "main"]


def main(argv: list[str]) -> int:
    """Runs the bench and returns its exit status."""
    try:
        options = parse(argv)
        extra.require("kakeya bench load")
        report_file.prepare(options.output)
        return _run(options)
    except KakeyaError as error:
        return _fail(explain(error, options.connection))
    except (BadConnectionFlag, MissingExtra, NotWritable, NoPrompts, TokenizerError) as error:
        return _fail(str(error))


def _run(options: Options) -> int:
    # Not before: `kakeya bench --help` must not wait for what draws.
    from rich.console import Console

    from kakeya.bench.load import output, summary
    from kakeya.bench.load.run import run

    report, interrupted = asyncio.run(run(options, Console(file=sys.stderr)))
    output.write(report)
    summary.print_summary(report)
    return interrupted if interrupted is not None else exit_status(report.verdicts())


def _fail(message: str) -> int:
    print(f"kakeya bench load: error: {printable(message)}", file=sys.stderr)
    return EXIT_UNDECIDED
