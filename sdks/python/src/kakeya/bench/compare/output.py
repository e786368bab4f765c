"""The files of a report."""

from kakeya.bench import report_file
from kakeya.bench.compare import page
from kakeya.bench.compare.report import JSON_NAME, Report


def write(report: Report) -> None:
    """The JSON document, the page and its pictures. Raises NotWritable."""
    report_file.write_all(report.options.output / JSON_NAME, report.document(), page.files)
