"""The page and the picture of `kakeya bench load`, from reports of all kinds."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kakeya.bench.facts import Facts
from kakeya.bench.load import page, picture
from kakeya.bench.load.kv_total import KvTotal
from kakeya.bench.load.level import Level, LevelState
from kakeya.bench.load.report import Report
from tests.unit.sdk.bench.drawn import share_of_paper, words
from tests.unit.sdk.bench.html_document import HtmlDocument
from tests.unit.sdk.bench.sweeping import SHORT, asked, failed, level, sweeper, turn
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

DASH = "\N{EN DASH}"
FACTS = Facts(
    model="counter", fingerprint="f", exact=True, sink=4, window=16, reserved_bytes=1, kv_dtype="float32",
    bytes_per_token=1024, why_not="", worker={"worker_id": "w"},
)  # fmt: skip


def document(*levels: Level, flags: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    """As it is read from a file."""
    sessions = ",".join(str(level.num_sessions) for level in levels) or "1"
    given: dict[str, Any] = {"facts": FACTS, "state": "complete", **fields}
    report = Report(asked("--sessions", sessions, *flags), levels=list(levels), **given)
    read: dict[str, Any] = json.loads(json.dumps(report.document()))
    return read


def plain() -> dict[str, Any]:
    """One session is served in time, four are not; of sixteen only five get in."""
    return document(
        level(1, *[turn(0.5, 0.02)] * 20, kv=KvTotal(20 << 10, 20 << 10)),
        level(4, *[turn(1.5, 0.04)] * 40, *[turn(2.5, 0.06)] * 10, kv=KvTotal(80 << 10, None, "worker w does not say")),
        level(16, *[turn(4.0, 0.1)] * 9, failed(session=3), num_opened=5, refusal="NoCapacity: full"),
    )  # fmt: skip


def read(document: dict[str, Any]) -> HtmlDocument:
    return HtmlDocument(page.files(document)["load.html"])


def drawn(document: dict[str, Any]) -> list[str]:
    return words(picture.draw(document)).splitlines()


def test_files() -> None:
    files = page.files(plain())
    assert files.keys() == {"load.html", "load.png"}
    assert 0.8 < share_of_paper(files["load.png"]) < 0.99
    (link,) = HtmlDocument(files["load.html"]).named("a")
    assert link["href"] == "load.json"


def test_a_sweep_leaves_them_in_its_report(
    runtime: ScriptedRuntime, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweeper(runtime, tmp_path, capsys)(*SHORT, "--sessions", "1,2")
    assert {path.name for path in tmp_path.iterdir()} == {"load.html", "load.json", "load.png"}
    known = json.loads((tmp_path / "load.json").read_text())
    assert {name: (tmp_path / name).read_bytes() for name in ("load.html", "load.png")} == page.files(known)
    assert "sweep complete" in " ".join(read(known).texts)


def test_the_same_document_gives_the_same_bytes() -> None:
    known = plain()
    assert page.files(known) == page.files(known)


def test_a_row_for_each_level() -> None:
    seen = read(plain())
    assert seen.row("sessions")[:6] == ["got in", "turns", "failed", "in time", "goodput, turns/s", "answered, turns/s"]
    assert seen.row("1") == [
        "1", "20", "0", "100.0%", "2.00", "2.00", "22.00", "500.00", "500.00", "20.00", "20.00", "20.00 KiB",
        "20.00 KiB",
    ]  # fmt: skip
    assert seen.row("4") == [
        "4", "50", "0", "80.0%", "4.00", "5.00", "55.00", "1,500.00", "2,500.00", "40.00", "60.00", "80.00 KiB", DASH,
    ]  # fmt: skip
    (other,) = (row for row in seen.rows if row[:2] == ["16", "5"])
    assert other[1:] == [
        "5", "10", "1", "0.0%", "0.00", "0.90", "9.90", "4,000.00", "4,000.00", "100.00", "100.00", DASH, DASH,
    ]  # fmt: skip


def test_what_the_page_says() -> None:
    seen = read(plain())
    said = "\n".join(seen.texts)
    assert "kakeya bench load: counter" in said
    assert "sweep complete" in said
    assert "gates failed" in said
    assert "first token came within 2 s (TTFT) and those after it took 0.2 s each or less" in said
    assert "think for 2 s on average" in said
    assert "began within 60 s after a warm-up of 5 s" in said
    assert "The largest level at which 90 % of the turns were in time: 1." in said
    assert "Level of 16: 5 got in; the next: NoCapacity: full." in said
    assert "Level of 4: KV is not known: worker w does not say." in said
    assert seen.row("errors")[0].endswith("failed")
    assert seen.row("goodput")[0].endswith("skipped")
    assert ["16", "3", "1", "0.0", "Internal: no"] in seen.rows
    assert "1 of 1." in said
    assert seen.row("fingerprint") == ["f"]
    assert seen.row("worker_id") == ["w"]
    assert seen.row("limits") == ["time_to_first_token_seconds 2.0, time_per_output_token_seconds 0.2"]
    assert seen.row("numbers_of_sessions") == ["[1, 4, 16]"]
    assert "num_processors" in {row[0] for row in seen.rows}


def test_of_many_errors_the_first_are_shown() -> None:
    seen = read(document(level(2, *[failed(index=index) for index in range(1, 26)])))
    assert "20 of 25." in seen.texts
    assert [row[2] for row in seen.rows if row[-1] == "Internal: no"] == [str(index) for index in range(1, 21)]


def test_a_sweep_without_errors_has_no_section_of_them() -> None:
    seen = read(document(level(1, turn())))
    assert "Turns that failed" not in seen.texts
    assert "sweep complete" in " ".join(seen.texts)
    assert "gates passed" in " ".join(seen.texts)


@pytest.mark.parametrize(
    ("state", "says"),
    [("interrupted", "sweep interrupted"), ("broken_off", "sweep broken off"), ("running", "sweep running")],
)
def test_a_sweep_that_did_not_come_to_its_end(state: str, says: str) -> None:
    cut = level(2, turn(), state=LevelState.BROKEN_OFF, why_not_closed="Internal: no")
    why = "no worker" if state == "broken_off" else ""
    said = " ".join(read(document(level(1, turn()), cut, state=state, why_broken_off=why)).texts)
    assert says in said
    assert "gates undecided" in said
    assert "Level of 2: broken off; its figures are of the turns that had come to their ends." in said
    assert "Level of 2: a session was not closed, and expires by itself: Internal: no." in said
    assert ("The sweep was broken off: no worker." in said) is (state == "broken_off")


@pytest.mark.parametrize("levels", [[], [level(2, num_opened=0, state=LevelState.REFUSED, measured_seconds=0.0)]])
def test_a_sweep_that_found_nothing(levels: list[Level]) -> None:
    known = document(*levels, facts=None, state="interrupted")
    seen = read(known)
    assert "kakeya bench load" in seen.texts
    assert "At no level 90 % of the turns were in time." in seen.texts
    assert not {"Model", "Worker of the first session"} & set(seen.texts)
    assert drawn(known).count("no turn counts") == 3


def test_a_worker_that_nobody_tells_of() -> None:
    seen = read(document(level(1, turn()), facts=replace(FACTS, worker={})))
    assert "Worker of the first session" not in seen.texts
    assert "Model" in seen.texts


def test_the_picture_names_its_axes_and_lines() -> None:
    said = drawn(plain())
    assert "counter: answers in time, with so many sessions at once" in said
    for name in (
        "turns (1/s)", "time to first token (s)", "time per output token (ms)", "sessions at once", "p50", "p95",
        "goodput: within both limits", "all that were answered",
    ):  # fmt: skip
        assert name in said
    assert "no turn counts" not in said


def test_each_level_has_a_tick_and_says_who_did_not_get_in() -> None:
    said = drawn(plain())
    assert [word for word in said if word in ("1", "4", "16")][-3:] == ["1", "4", "16"]
    assert "(5 got in)" in said


def test_a_limit_is_drawn_where_it_can_be_seen() -> None:
    said = drawn(plain())
    assert "limit: 2 s" in said
    assert "limit: 0.2 s" in said
    far = drawn(document(level(1, turn(0.6, 0.01)), level(2, turn(0.6, 0.01))))
    assert "limit: 2 s, far above" in far
    assert "limit: 0.2 s, far above" in far


def test_answers_of_one_token_leave_a_panel_empty() -> None:
    assert drawn(document(level(1, turn(1.0, None)))).count("no turn counts") == 1


def test_foreign_names_do_no_harm() -> None:
    model = "<b>$x$</b>\n" + "long" * 20
    known = document(level(1, turn(), failed(error="<script>")), facts=replace(FACTS, model=model))
    seen = read(known)
    assert not seen.named("b")
    assert not seen.named("script")
    assert any(word.startswith("<b>$x$</b>\N{REPLACEMENT CHARACTER}long") for word in drawn(known))
