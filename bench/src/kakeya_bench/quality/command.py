"""`kakeya bench quality`."""

import os
import sys

from kakeya.cli.output.table import print_json, printable
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
        from kakeya_bench.report import console
    except ModuleNotFoundError as error:  # the extra is not installed
        raise CannotMeasure(f"the module {error.name!r} is missing; install it with: {INSTALL}") from error

    if settings.output:
        files.prepare(settings.output)
    document = run.run(settings, Console(file=sys.stderr))
    try:
        if settings.output:
            files.write_all(settings.output / page.JSON_NAME, document, page.files)
    finally:  # what was found is said where it cannot be written, and written where nobody listens any more
        if settings.print_json:
            print_json(document)
        else:
            console.print_sections(*page.summary(document))
    if settings.output:
        print(f"report: {settings.output}", file=sys.stderr if settings.print_json else sys.stdout)
    return exit_status(floors.verdicts(document))
