"""The files of a result."""

import json
import shutil
import tempfile
from pathlib import Path

from kakeya_worker.quality.card import card
from kakeya_worker.quality.document import document
from kakeya_worker.quality.failure import CannotMeasure
from kakeya_worker.quality.pictures import perplexity_picture, recall_picture
from kakeya_worker.quality.result import Result


def prepare(directory: Path) -> None:
    """Makes the directory, so that nothing is measured for nothing. Raises CannotMeasure."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        raise CannotMeasure(f"{directory} cannot be written to: {error}") from error


def write(result: Result, directory: Path) -> None:
    """Writes everything beside the directory's files first, and only then puts one after the other in its place.

    What breaks off the writing leaves the files of an earlier run as they were. `quality.json` is put in its place
    last: where it is new, so is the rest.

    Raises:
        CannotMeasure: it cannot be written.
    """
    files = {
        "card.md": card(result).encode(),
        "recall.png": recall_picture(result),
        "perplexity.png": perplexity_picture(result),
        "quality.json": (json.dumps(document(result), indent=2) + "\n").encode(),
    }
    scratch = Path()
    try:
        scratch = Path(tempfile.mkdtemp(prefix=".part-", dir=directory))
        for name, content in files.items():
            (scratch / name).write_bytes(content)
        for name in files:
            (scratch / name).replace(directory / name)
    except OSError as error:
        raise CannotMeasure(f"{directory} cannot be written to: {error}") from error
    finally:
        if scratch.name:
            shutil.rmtree(scratch, ignore_errors=True)
