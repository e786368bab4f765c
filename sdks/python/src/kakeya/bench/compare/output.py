"""The files of a report."""

from kakeya.bench import report_file
from kakeya.bench.compare import page
from kakeya.bench.compare.report import JSON_NAME, Report


def write(report: Report) -> None:
    """The picture and the page, then the JSON document: where that says that the run is over, the others are there.

    Raises:
        NotWritable
    """
    directory, document = report.options.output, report.document()
    for name, content in page.files(document).items():
        report_file.write(directory / name, content)
    report_file.write_json(directory / JSON_NAME, document)
