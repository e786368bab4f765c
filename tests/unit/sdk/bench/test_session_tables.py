"""What the page of `kakeya bench session` says in words and tables."""

from typing import Any

import pytest

from kakeya.bench import html_page
from kakeya.bench.session import tables
from kakeya.bench.turn import Turn
from tests.unit.sdk.bench.html_document import HtmlDocument
from tests.unit.sdk.bench.session_document import CASES, FACTS, document, failed, turns


def read(document: dict[str, Any]) -> HtmlDocument:
    """The tables alone: drawing takes longer than everything else."""
    return HtmlDocument(
        html_page.page("title", tables.badges(document), [*tables.findings(document), *tables.rest(document)])
    )


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    """A run of one session as it should be."""
    return document(turns(130))


@pytest.mark.parametrize(
    ("state", "played", "badges"),
    [
        ("complete", turns(20), ["✓ run complete", "? gates undecided"]),
        ("interrupted", [*turns(5), failed(6)], ["? run interrupted", "✗ gates failed"]),
        ("given_up", [failed(1)], ["✗ run given up", "✗ gates failed"]),
        ("running", [], ["? run running", "? gates undecided"]),
    ],
)
def test_the_page_begins_with_what_the_run_came_to(state: str, played: list[Turn], badges: list[str]) -> None:
    assert f"title{''.join(badges)}Gates" in "".join(read(document(played, state=state)).texts)


def test_the_gates_of_a_run_are_passed_where_all_that_were_asked_are() -> None:
    skipped = ["--skip-gate", "prefill_bounded", "--skip-gate", "rss_bounded"]
    assert "✓ gates passed" in "".join(read(document(turns(20), FACTS, *skipped)).texts)
    every = [
        flag for name in ("kv_bounded", "rss_bounded", "prefill_bounded", "errors") for flag in ("--skip-gate", name)
    ]
    assert "\N{EN DASH} gates skipped" in "".join(read(document(turns(3), FACTS, *every)).texts)


def test_the_page_says_what_the_gates_say(plain: dict[str, Any]) -> None:
    found = read(plain)
    gates = plain["gates"]
    signs = {"passed": "✓", "failed": "✗", "undecided": "?", "skipped": "\N{EN DASH}"}
    assert [row for row in found.rows if row[0] in gates and len(row) == 4] == [
        [name, f"{signs[gate['outcome']]} {gate['outcome']}", gate["reason"], gate["formula"]]
        for name, gate in gates.items()
    ]


def test_the_page_has_the_figures_with_units(plain: dict[str, Any]) -> None:
    found, agg = read(plain), plain["agg"]
    assert found.row("turn")[2] == f"{agg['turn_s']['p50'] * 1e3:,.2f}"
    assert found.row("turn")[-1] == "ms"
    assert found.row("time to first token per new token")[6] == (
        f"{agg['time_to_first_token_per_new_token_s']['max'] * 1e3:.2f}"
    )
    assert found.row("KV of a session")[2:] == ["368,640", "360.00 KiB"]
    assert found.row("resident memory of a worker")[0] == f"{agg['worker_rss_bytes']['min']:,}"


def test_the_page_has_the_stretches_of_time(plain: dict[str, Any]) -> None:
    found = read(plain)
    (header,) = (row for row in found.rows if row[0] == "from")
    rows = [row for row in found.rows if len(row) == len(header) and row is not header]
    assert len(rows) == 10
    assert [row[0] for row in rows[1:]] == [row[1] for row in rows[:-1]]
    first = plain["buckets_10min"][0]
    assert dict(zip(header, rows[0], strict=True)) | {"from": "0:00:00.0"} == {
        "from": "0:00:00.0",
        "to": f"0:00:0{first['end_s']:.1f}",
        "turns": str(first["num_turns"]),
        "failed": "0",
        "turn p50, ms": f"{first['turn_s']['p50'] * 1e3:.2f}",
        "turn p95, ms": f"{first['turn_s']['p95'] * 1e3:.2f}",
        "first token p50, ms": f"{first['time_to_first_token_s']['p50'] * 1e3:.2f}",
        "first token p95, ms": f"{first['time_to_first_token_s']['p95'] * 1e3:.2f}",
        "per new token p50, ms": f"{first['time_to_first_token_per_new_token_s']['p50'] * 1e3:.2f}",
        "KV max, bytes": "368,640",
        "RSS max, MiB": f"{first['worker_rss_bytes']['max'] / 2**20:,.1f}",
    }


def test_the_page_has_what_was_asked_and_where_it_ran(plain: dict[str, Any]) -> None:
    plain = plain | {"environment": {"cpu": "EPYC", "versions": {"kakeya": "0.1.0", "torch": "2.13"}, "load": [0.5]}}
    found = read(plain)
    assert found.row("max_tokens") == ["64"]
    assert found.row("uses_template") == ["yes"]
    assert found.row("duration_seconds") == ["\N{EN DASH}"]
    assert found.row("turn_spacing_seconds") == ["0.0"]
    assert found.row("reserved_bytes") == ["439,296"]
    assert "worker" not in [row[0] for row in found.rows], "it has a table of its own"
    assert found.row("backend") == ["torch"]
    assert found.row("versions") == ["kakeya 0.1.0, torch 2.13"]
    assert found.row("load") == ["[0.5]"]


@pytest.mark.parametrize(
    ("drift", "says"),
    [
        (0.0021, "took 2.1 ms more than that of the first tenth."),
        (-1.5, "took 1,500.0 ms less than"),
        (None, "the warm-up."),
    ],
)
def test_the_page_says_whether_turns_became_slower(plain: dict[str, Any], drift: float | None, says: str) -> None:
    found = read(plain | {"agg": plain["agg"] | {"latency_drift_p50_s": drift}})
    (about,) = (text for text in found.texts if text.startswith("Times are of turns that did not fail"))
    assert says in about
    assert ("median turn" in about) == (drift is not None)


def test_the_first_errors_are_listed() -> None:
    few = read(document([*turns(10), failed(11, "A: first"), failed(12, "B: second")]))
    assert "2, all of them." in few.texts
    assert [row[-1] for row in few.rows if row[0] == "0" and row[1] in ("11", "12")] == ["A: first", "B: second"]
    many = read(document([failed(index, "A: again") for index in range(1, 1_031)]))
    assert "The first 20 of 1,030." in many.texts
    assert len([row for row in many.rows if row[-1] == "A: again"]) == 20
    assert "Turns that failed" not in read(document(turns(3))).texts


def test_where_nothing_is_known_the_page_says_so() -> None:
    assert "The router tells operators only." in read(CASES["no config"]).texts
    nothing = read(CASES["no turn"])
    assert "No turn was played." in nothing.texts
    assert set(nothing.row("turn")) == set(nothing.row("KV of a session")) == {"\N{EN DASH}"}
    unknown = read(CASES["no memory"])
    assert set(unknown.row("resident memory of a worker")) == {"\N{EN DASH}"}
    assert len([row for row in unknown.rows if len(row) == 11 and row[-1] == "\N{EN DASH}"]) == 10


def test_one_of_a_thing_is_not_many() -> None:
    says = " ".join(read(CASES["one turn"]).texts)
    assert "236 tokens: 1 turn in 1 session, 0 of them failed; " in says
    more = document(turns(2), FACTS, "--sessions", "3", "--warm-up-turns", "1")
    says = " ".join(read(more).texts)
    assert "2 turns in 3 sessions" in says
    assert "without the first 1 turn of each session" in says
