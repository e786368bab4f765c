"""The page, the picture and the summary: one page in whole, and pictures of sweeps of all kinds."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kakeya_bench.conversation.speech import Facts
from kakeya_bench.load import page
from kakeya_bench.load.level import KvTotal, Level, LevelState
from kakeya_bench.load.report import Report
from tests.unit.bench.conversation import playing
from tests.unit.bench.load.sweeping import asked, failed, level, turn
from tests.unit.bench.report import golden

GOLDEN = Path(__file__).parent / "golden" / "load.html"
FACTS = replace(playing.FACTS, name="<b>counter</b>")


def document(*levels: Level, facts: Facts | None = FACTS, **fields: Any) -> dict[str, Any]:
    """Of a sweep that never was, at a time and a place that never were."""
    numbers = ",".join(str(each.num_sessions) for each in levels) or "1"
    made = Report(
        settings=asked("--sessions", numbers),
        facts=facts,
        levels=list(levels),
        environment={"machine": "a"},
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        **fields,
    ).document()
    return made | {"written_at": "2026-01-01T00:01:00+00:00"}


def full() -> dict[str, Any]:
    """One session is served in time, four are not, of sixteen only five get in, the last level is broken off."""
    return document(
        level(1, *[turn(0.5, 0.02)] * 20, kv=KvTotal(20 << 10, 20 << 10)),
        level(4, *[turn(1.5, 0.04)] * 40, *[turn(2.5, 0.06)] * 10, kv=KvTotal(80 << 10, None, "worker w does not say")),
        level(16, *[turn(4.0, 0.1)] * 9, failed(session=3), num_opened=5, refusal="NoCapacity: <full>"),
        level(32, num_opened=2, state=LevelState.BROKEN_OFF, measured_seconds=0.0, not_closed=["Internal: no"]),
        state="broken_off",
        why_broken_off="no worker",
    )


def test_the_whole_page() -> None:
    files = page.files(full())
    assert files.keys() == {"load.html", "load.png"}
    assert not golden.differs(files["load.html"], GOLDEN, "load.svg")


@pytest.mark.parametrize(
    "made",
    [
        document(facts=None, state="interrupted"),
        document(level(2, num_opened=0, state=LevelState.REFUSED, measured_seconds=0.0), facts=None, state="complete"),
        document(level(1, turn(1.0, None)), state="complete"),
        document(*(level(2**size, turn(0.1 * size, 0.01)) for size in range(1, 10)), state="running"),
    ],
    ids=["no level", "nothing found", "answers of one token", "many levels"],
)
def test_the_picture_draws(made: dict[str, Any]) -> None:
    assert page.files(made)["load.png"].startswith(b"\x89PNG")


def test_the_summary_says_what_the_page_says_first() -> None:
    title, sections = page.summary(full())
    assert title == "kakeya bench load: <b>counter</b>"
    assert [section.heading for section in sections] == ["Levels", "Gates", "Turns that failed"]
