"""The files of a report."""

from kakeya.bench import report_file
from kakeya.bench.session import page
from kakeya.bench.session.report import Report
from kakeya.bench.session.run import JSON_NAME


def write(report: Report) -> None:
    """The JSON document, the page and its pictures. Raises NotWritable."""
    report_file.write_all(report.options.output / JSON_NAME, report.document(), page.files)
