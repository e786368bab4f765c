"""The files of a report."""

from kakeya.bench import report_file
from kakeya.bench.session import page
from kakeya.bench.session.report import Report
from kakeya.bench.session.run import JSON_NAME


def write(report: Report) -> None:
    """The JSON document, then the pictures and the page, which can be drawn from it again.

    Raises:
        NotWritable
    """
    directory, document = report.options.output, report.document()
    report_file.write_json(directory / JSON_NAME, document)
    for name, content in page.files(document).items():
        report_file.write(directory / name, content)
