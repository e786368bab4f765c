"""`kakeya bench quality`."""

import os
import sys

from kakeya_worker.quality.failure import CannotMeasure, missing
from kakeya_worker.quality.floors import EXIT_NOT_MEASURED, exit_status
from kakeya_worker.quality.options import SUMMARY, Options, parse

__all__ = ["SUMMARY", "main"]


def main(argv: list[str]) -> int:
    options = parse(argv)
    try:
        return _run(options)
    except CannotMeasure as error:
        print(f"kakeya bench quality: error: {error}", file=sys.stderr)
        return EXIT_NOT_MEASURED


def _run(options: Options) -> int:
    # Read by OpenMP when the backend is imported; see the worker's program.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    try:
        import matplotlib  # noqa: F401  # its lack is said before anything is measured
        import rich  # noqa: F401  # as above
    except ModuleNotFoundError as error:
        raise missing(error.name) from error
    # Not before: `kakeya bench --help` must not wait for numpy and what else is needed to measure.
    from kakeya_worker.quality import output, run, summary

    if options.output:
        output.prepare(options.output)
    result = run.run(options)
    if options.output:
        output.write(result, options.output)
    summary.print_summary(result)
    return exit_status(result.judged)
