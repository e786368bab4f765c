"""The page, the picture and the summary, from reports of all kinds."""

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from kakeya.bench import pictures
from kakeya.bench.compare import page, picture, summary
from kakeya.bench.compare.notes import notes
from kakeya.bench.compare.options import parse
from kakeya.bench.compare.report import Report
from kakeya.bench.compare.rival_kv import RivalKv
from kakeya.bench.facts import Facts
from tests.unit.sdk.bench.comparing import played

DASH = "\N{EN DASH}"
FACTS = Facts(
    model="counter", fingerprint="f", exact=True, sink=4, window=16, reserved_bytes=1, kv_dtype="float32",
    bytes_per_token=1024, why_not="", worker={"worker_id": "w"},
)  # fmt: skip
RIVALS = ("--rival=a=http://h/v1,context=2000", "--rival=c=http://h/v1,every=mark")


def report(*flags: str, why_not: str = "", output: Path = Path("out")) -> Report:
    asked = parse(["--turns=3", f"--output={output}", *RIVALS, *flags], {})
    return Report(asked, FACTS, RivalKv(None, why_not) if why_not else RivalKv(512))


def full(**facts: Any) -> Report:
    made = report("--at-least", "a=2", "--at-least", "c=9", **facts)
    made.state = "complete"
    made.rss_before = {"kakeya": 1 << 20, "a": 2 << 20, "c": None}
    for index in (1, 2, 3):
        made.turns += [
            played(index, 0.5, kv_live_bytes=1024 * index, rss_bytes=3 << 20),
            played(
                index, 1.5 * index, "a", kv_computed_bytes=512 * index, rss_bytes=4 << 20, num_dropped_tokens=index - 1
            ),
            played(index, 2.0, "c", rss_bytes=None),
        ]  # fmt: skip
    return made


def text(document: dict[str, Any]) -> str:
    html = page.files(document)["compare.html"].decode()
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html)))


def test_files() -> None:
    document = full().document()
    files = page.files(document)
    assert files.keys() == {"compare.html", "compare.png"}
    assert files["compare.png"].startswith(b"\x89PNG")
    assert b'<a href="compare.json">' in files["compare.html"]
    assert files == page.files(document), "the same document gives the same bytes"


def test_what_the_page_says() -> None:
    said = text(full().document())
    assert "✓ run complete" in said
    assert "✗ claims failed" in said
    assert "kakeya bench compare: counter" in said
    assert "3 turns of 100 new tokens and 16 of an answer" in said
    assert "player turn 1, ms turn 3, ms mean, ms worst, ms conversation, s" in said
    assert "a 1,500.0 3,000.0 3,000.0 4,500.0 18.0" in said
    assert "kakeya 500.0 500.0 500.0 500.0 3.0" in said
    assert "time to first token at turn 3: a / kakeya >= 2 ✓ passed 3,000.0 ms / 500.0 ms = 6.0" in said
    assert "kakeya 1.00 MiB 3.00 MiB 3.00 MiB 3.00 KiB 3.00 KiB measured" in said
    assert "a 2.00 MiB 4.00 MiB 4.00 MiB 1.50 KiB 1.50 KiB computed" in said
    assert f"c {' '.join(6 * [DASH])}" in said
    assert "a: 2 turns began with fewer of the oldest tokens, since its context holds 2,000." in said
    assert "c: plays the marks alone, with the runtime's history." in said
    assert "Turns that failed" not in said
    assert "worker_id w" in said


def test_a_report_of_nothing() -> None:
    document = report(why_not="no config").document()
    said = text(document)
    assert "? run running" in said
    assert "claims" not in said
    assert "What the KV of the others weighs is not known: no config." in said
    svg = picture.draw(document).svg
    assert svg.count("no turn succeeded") == 2
    assert svg.count("not known") == 2


def test_turns_that_failed_and_who_was_left_out() -> None:
    made = full()
    made.turns += [played(4, None, "a", error="HTTP 400: <no>"), played(5, None, "a")]
    made.left_out = {"a": 5}
    said = text(made.document())
    assert "Turns that failed" in said
    assert "4 a HTTP 400: <no>" in said
    assert "a: 2 turns failed; the first was turn 4: HTTP 400: <no>." in said
    assert "a: left out after turn 5, since turn after turn failed." in said


def test_claims_that_hold_or_cannot_be_judged() -> None:
    made = full()
    made.options.claims.pop("c")  # type: ignore[attr-defined]
    assert "✓ claims passed" in text(made.document())
    made.turns.clear()
    assert "? claims undecided" in text(made.document())


@pytest.mark.parametrize(("number", "turns"), [(1, "1 turn"), (3, "3 turns")])
def test_answers_that_are_not_known(number: int, turns: str) -> None:
    made = report()
    made.turns += [played(index, 1.0, "a", knows_answer=False) for index in range(1, number + 1)]
    assert any(f"a: its answer's ids are not known in {turns}: " in note for note in notes(made.document()))


def test_lines_of_players_of_all_turns_and_dots_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, Any] = {}

    def paint(name: str, width: float, height: float, paint: Any) -> None:
        from matplotlib.figure import Figure

        figure = Figure()
        paint(figure)
        first = figure.axes[0]
        assert first.get_yscale() == "log"
        assert first.get_ylabel() == "time to first token\n(ms, logarithmic)"
        for line in first.lines:
            heights: Any = line.get_ydata()
            drawn[str(line.get_label())] = (list(heights), line.get_linestyle(), line.get_marker())

    monkeypatch.setattr(pictures, "draw", paint)
    picture.draw(full().document())
    assert drawn == {
        "kakeya": ([500.0, 500.0, 500.0], "-", "None"),
        "a": ([1500.0, 3000.0, 4500.0], "-", "None"),
        "c": ([2000.0, 2000.0, 2000.0], "None", "o"),
    }


def test_summary(capsys: pytest.CaptureFixture[str]) -> None:
    summary.print_summary(full())
    said = capsys.readouterr().out.splitlines()
    assert said[:5] == [
        "counter: sink 4, window 16; 3 turns of 100 new tokens and 16 of an answer (complete)",
        "TTFT, MS  TURN 1   TURN 3   MEAN     WORST    CONVERSATION  RSS BEFORE  RSS END",
        "kakeya    500.0    500.0    500.0    500.0    3.0 s         1.0 MiB     3.0 MiB",
        "a         1,500.0  3,000.0  3,000.0  4,500.0  18.0 s        2.0 MiB     4.0 MiB",
        "c         2,000.0  2,000.0  2,000.0  2,000.0  12.0 s        -           -",
    ]
    assert said[5].startswith(
        "Time to first token (TTFT) by the client's clock. At a mark: the median of up to 5 turns"
    )
    assert "a: 2 turns began with fewer of the oldest tokens, since its context holds 2,000." in said
    assert said[-3:] == [
        "passed     a at least 2 times: 3,000.0 ms / 500.0 ms = 6.0",
        "failed     c at least 9 times: 2,000.0 ms / 500.0 ms = 4.0",
        "report: out",
    ]


def test_summary_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    summary.print_summary(report())
    assert "a         -       -       -     -      -             -           -" in capsys.readouterr().out.splitlines()
