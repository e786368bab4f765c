"""A slice of `make fuzz-gguf`."""

from pathlib import Path

import pytest

from tests.soak.fuzz_gguf.mutants import originals
from tests.soak.fuzz_gguf.proof import FuzzGguf, _Case

NUM_FILES = 3_000


@pytest.mark.heavy
def test_every_file_is_opened_or_refused_in_one_line(tmp_path: Path) -> None:
    report = FuzzGguf(files=NUM_FILES).run(tmp_path)
    assert report.violations == []
    assert report.facts["files"] == NUM_FILES
    assert set(report.facts["by_end"]) == {"opened", "refused"}
    assert len(report.facts["errors"]) > 15


def test_whole_files_are_opened(tmp_path: Path) -> None:
    """Else faults would be put into what is refused anyhow."""
    for number, content in enumerate(originals()):
        path = tmp_path / f"{number}.gguf"
        path.write_bytes(content)
        case = _Case(path, len(content))
        case.read()
        assert case.faults == []
        assert (case.ended, case.reason) == ("opened", "") or number == 3
