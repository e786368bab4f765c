"""The page, the picture and the summary: one page in whole, and pictures of all kinds of runs."""

from pathlib import Path

import pytest

from kakeya_bench.compare import page
from kakeya_bench.compare.report import Report
from tests.unit.bench.compare.comparing import played, report
from tests.unit.bench.report import golden

GOLDEN = Path(__file__).parent / "golden" / "compare.html"


def full() -> Report:
    """Of three turns, in which all happens that there is to be told."""
    made = report(flags=("--at-least=a=2", "--at-least=c=9"), why_not="no <config>")
    made.state = "complete"
    made.rss_before = {"kakeya": 1 << 20, "a": 2 << 20, "c": None}
    made.left_out = {"a": 4}
    for index in (1, 2, 3):
        dropped = {"num_dropped_tokens": index - 1, "knows_answer": index > 1}
        made.turns += [
            played(index, 0.5, kv_live_bytes=1024 * index, rss_bytes=3 << 20),
            played(index, 1.5 * index, "a", kv_computed_bytes=512 * index, rss_bytes=4 << 20, **dropped),
            played(index, 2.0, "c"),
        ]
    made.turns.append(played(4, None, "a", error="HTTP 400: <no>"))
    return made


def test_the_whole_page() -> None:
    files = page.files(full().document() | {"written_at": "2026-01-01T00:01:00+00:00"})
    assert files.keys() == {"compare.html", "compare.png"}
    assert not golden.differs(files["compare.html"], GOLDEN, "compare.svg")


@pytest.mark.parametrize(
    "made",
    [
        report(why_not="no config"),
        report(*(played(index, 0.1 * index, rss_bytes=index) for index in range(1, 4))),
        report(*(played(index, 0.1, name) for index in range(1, 800) for name in ("kakeya", "a", "c"))),
    ],
    ids=["no turn", "one player", "many turns"],
)
def test_the_picture_draws(made: Report) -> None:
    assert page.files(made.document())["compare.png"].startswith(b"\x89PNG")


def test_the_summary_says_what_the_page_says_first() -> None:
    title, sections = page.summary(full().document())
    assert title == "kakeya bench compare: counter"
    assert [section.heading for section in sections] == [
        "Time to first token", "Claims", "Memory", "Turns that failed",
    ]  # fmt: skip
