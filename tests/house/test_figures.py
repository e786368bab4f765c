"""What README and docs say of speed and size is what docs/figures.json has recorded."""

import json
import re
import sys
from pathlib import Path

import pytest

from tests.house.packages import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import record_figures

_CLAIM = re.compile(r"^\| [^|]+ \| (?P<figure>[^|]+) \| \[\w+\]\(docs/\w+\.md\) \|$", re.MULTILINE)
_OF_THE_SETTING = {"0.6", "4", "64", "8"}
"""Numbers in README's claims that say what was measured: a model's name, a session's size, how many sessions."""


def test_pages_say_what_is_recorded() -> None:
    recorded = json.loads(record_figures.FIGURES.read_text())
    for page in record_figures.PAGES:
        assert record_figures.written(page.read_text(), recorded) == page.read_text(), f"{page.name}: make figures"


def test_every_figure_of_the_claims_is_recorded() -> None:
    claims = _CLAIM.findall((ROOT / "README.md").read_text())
    assert len(claims) == 5
    for claim in claims:
        rest = record_figures.FIGURE.sub("", claim)
        assert {*re.findall(r"(?<!\w)\d[\d,.]*\d|(?<!\w)\d", rest)} <= _OF_THE_SETTING, claim


def test_every_figure_says_what_measured_it() -> None:
    recorded = json.loads(record_figures.FIGURES.read_text())
    for name in {each.partition(".")[0] for each in [*recorded["figures"], *recorded["tables"]]}:
        assert recorded["runs"][name].keys() == {"command", "cpu", "date", "num_processors"}


def test_an_older_figure_is_found_and_written_anew() -> None:
    recorded = {"figures": {"engine.decode_8": "3.6"}, "runs": {}, "tables": {}}
    page = "takes 2.5<!-- engine.decode_8 --> times"
    assert record_figures.written(page, recorded) == "takes 3.6<!-- engine.decode_8 --> times"
    with pytest.raises(KeyError):
        record_figures.written("9<!-- engine.unknown -->", recorded)


def test_a_folder_without_documents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has none of session/report\.json"):
        record_figures.recorded(tmp_path, {})
