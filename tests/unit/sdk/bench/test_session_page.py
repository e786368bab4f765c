"""The files of a report of `kakeya bench session`."""

import json
from dataclasses import replace
from functools import cache

import pytest

from kakeya.bench.session import page
from tests.unit.sdk.bench.drawn import image, share_of_paper
from tests.unit.sdk.bench.html_document import HtmlDocument
from tests.unit.sdk.bench.session_document import CASES, FACTS, document, failed, turns

PNGS = ["latency.png", "memory.png", "prefill.png"]


@cache
def files(name: str) -> dict[str, bytes]:
    """What is made of a case."""
    return page.files(CASES[name])


def test_the_files_are_a_page_and_its_pictures() -> None:
    made = files("plain")
    assert sorted(made) == [*PNGS, "report.html"]
    assert [image(made[name]).size for name in PNGS] == [(1300, 832), (1300, 1118), (1300, 572)]


def test_the_same_report_has_the_same_bytes_as_it_stands_in_its_file_too() -> None:
    assert page.files(json.loads(json.dumps(CASES["plain"]))) == files("plain")


def test_another_run_looks_otherwise() -> None:
    other = page.files(document(turns(130, seed=1)))
    for name, content in files("plain").items():
        assert content != other[name]


def test_the_page_refers_to_nothing_but_the_report_beside_it() -> None:
    found = HtmlDocument(files("plain")["report.html"])
    references = [each[name] or "" for _, each in found.elements for name in ("href", "src") if name in each]
    assert {reference for reference in references if not reference.startswith("#")} == {"report.json"}
    assert not found.named("script")
    ids = [each["id"] for _, each in found.elements if "id" in each]
    assert len(ids) == len({*ids})
    assert {reference[1:] for reference in references if reference.startswith("#")} <= {*ids}


def test_a_name_or_an_error_cannot_be_markup() -> None:
    nasty = "<script>alert(1)</script>"
    facts = replace(FACTS, model=nasty, worker={"worker_id": nasty})
    made = page.files(document([*turns(20, worker=nasty), failed(21, nasty)], facts))
    found = HtmlDocument(made["report.html"])
    assert not found.named("script")
    assert f"kakeya bench session: {nasty}" in found.texts
    assert ["0", "21", "0:00:05.2", nasty] in found.rows
    assert found.row("worker_id") == [nasty]
    assert f"{nasty}: what a turn takes" in found.drawn
    assert nasty in found.drawn, "the worker in the legend"


@pytest.mark.parametrize(
    "name",
    ["plain", "no turn", "one turn", "only errors", "no first token", "no memory", "no config", "no time at all"],
)
def test_every_report_makes_a_page_with_pictures_that_are_not_blank(name: str) -> None:
    made = files(name)
    assert set(made) == {"report.html", *PNGS}
    assert [png for png in PNGS if not 0.1 < share_of_paper(made[png]) < 0.995] == []
    assert len(HtmlDocument(made["report.html"]).named("svg")) == 3


def test_the_files_of_a_run_of_days_stay_small() -> None:
    made = page.files(document([turn for number in range(5) for turn in turns(2_000, session=number)]))
    assert len(made["report.html"]) < 400_000
    assert all(len(made[name]) < 600_000 for name in PNGS)
