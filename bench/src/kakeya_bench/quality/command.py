"""`kakeya bench quality`."""

import os
import sys

from kakeya.cli.output.table import printable
from kakeya_bench.conversation.command import publish
from kakeya_bench.quality import floors
from kakeya_bench.quality.settings import INSTALL, SUMMARY, CannotMeasure, QualitySettings
from kakeya_bench.report import files
from kakeya_bench.report.files import NotWritable
from kakeya_bench.report.verdict import EXIT_UNDECIDED, exit_status

__all__ = ["SUMMARY", "main"]


def main(argv: list[str]) -> int:
    """Runs the bench and returns its exit status."""
    settings = QualitySettings.parse(argv)
    try:
        return _run(settings)
    except (CannotMeasure, NotWritable) as error:
        print(f"kakeya bench quality: error: {printable(str(error))}", file=sys.stderr)
        return EXIT_UNDECIDED


def _run(settings: QualitySettings) -> int:
    # Read by OpenMP when the backend is imported; see the worker's program.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    # Not before: `kakeya bench --help` must not wait for numpy and what else is needed to measure.
    try:
        from rich.console import Console

        from kakeya_bench.quality import run
        from kakeya_bench.quality.result import page
    except ModuleNotFoundError as error:  # the extra is not installed
        raise CannotMeasure(f"the module {error.name!r} is missing; install it with: {INSTALL}") from error

    if settings.output:
        files.prepare(settings.output)
    document = run.run(settings, Console(file=sys.stderr))
    publish(document, page, settings.output and settings.output / page.JSON_NAME, is_json=settings.print_json)
    return exit_status(floors.verdicts(document))
