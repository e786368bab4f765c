"""What reports have in common, before it is a page or lines: verdicts, figures, sections."""

from typing import Any

import pytest

from kakeya_bench.report import blocks, quantities
from kakeya_bench.report.blocks import Badge, Table
from kakeya_bench.report.quantities import NO_UNIT, Bytes, Precise, Seconds, Share, counted, show
from kakeya_bench.report.verdict import EXIT_FAILED, Outcome, Verdict, at_least, at_most, exit_status

FAILED, PASSED, SKIPPED, UNDECIDED = Outcome.FAILED, Outcome.PASSED, Outcome.SKIPPED, Outcome.UNDECIDED


@pytest.mark.parametrize(
    ("outcomes", "status", "together"),
    [
        ([PASSED, PASSED], 0, "passed"),
        ([PASSED, SKIPPED], 0, "passed"),
        ([PASSED, UNDECIDED], 2, "undecided"),
        ([UNDECIDED, FAILED, PASSED], 1, "failed"),
        ([SKIPPED], 0, "skipped"),
        ([], 0, "skipped"),
    ],
)
def test_a_failure_outweighs_a_doubt(outcomes: list[Outcome], status: int, together: str) -> None:
    verdicts = [Verdict(f"gate {number}", outcome, "", "") for number, outcome in enumerate(outcomes)]
    assert exit_status(verdicts) == status
    assert blocks.worst({each.gate: each.document() for each in verdicts}) == Badge(together, f"gates {together}")


def test_gates_stand_in_a_table() -> None:
    verdicts = [Verdict("errors", FAILED, "turns that failed = 0", "2 of 3"), Verdict("exact", SKIPPED, "f", "r")]
    table = blocks.gates({each.gate: each.document() for each in verdicts})
    assert table.rows == [
        ["errors", Badge("failed"), "2 of 3", "turns that failed = 0"],
        ["exact", Badge("skipped"), "r", "f"],
    ]


def test_facts_are_names_and_values_and_what_is_nested_is_one_line() -> None:
    known = {
        "cpu": "EPYC",
        "cores": 2,
        "none": None,
        "load": [0.5, 2],
        "versions": {"kakeya": "0.1", "at": {"b": 2}},
    }
    (table,) = blocks.facts("Environment", known).blocks
    assert isinstance(table, Table)
    shown = [[show(cell) for cell in row] for row in table.rows]
    assert shown == [
        ["cpu", "EPYC"],
        ["cores", "2"],
        ["none", "\N{EN DASH}"],
        ["load", "0.5, 2"],
        ["versions", "kakeya 0.1, at b 2"],
    ]


def test_the_first_failures_are_listed() -> None:
    turns: list[dict[str, Any]] = [{"turn_index": index, "error": None} for index in range(3)]
    assert blocks.failures(turns, ["turn_index"]) == []
    turns += [{"turn_index": index, "error": f"no {index}"} for index in range(3, 1_033)]
    (section,) = blocks.failures(turns, ["turn_index"])
    shown, table = section.blocks
    assert (shown, isinstance(table, Table) and table.columns) == ("20 of 1,030.", ["turn index", "error"])
    assert isinstance(table, Table)
    assert (table.rows[0], len(table.rows)) == ([3, "no 3"], 20)


@pytest.mark.parametrize(("value", "outcome"), [(1.05, "passed"), (1.065, "failed"), (float("nan"), "failed")])
def test_what_may_not_be_larger(value: float, outcome: str) -> None:
    verdict = at_most("CreateSession", "of the base:", Precise(value), Precise(1.05))
    assert (verdict.gate, verdict.outcome) == ("CreateSession", Outcome(outcome))
    assert verdict.formula == "of the base: <= 1.050"
    assert verdict.reason == f"of the base: {value:.3f}, at most 1.050"
    assert exit_status([verdict]) == (0 if outcome == "passed" else EXIT_FAILED)


@pytest.mark.parametrize(("value", "outcome"), [(0.3, "passed"), (0.25, "failed")])
def test_what_may_not_be_smaller(value: float, outcome: str) -> None:
    verdict = at_least("pause", "it lasts", Seconds(value), Seconds(0.3))
    assert verdict.outcome is Outcome(outcome)
    assert verdict.reason == f"it lasts {value * 1e3:.2f} ms, at least 300.00 ms"
    assert verdict.figures == {"value": value, "bound": 0.3}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\N{EN DASH}"),
        (True, "yes"),
        (False, "no"),
        (12_345, "12,345"),
        (1_234.567, "1,234.57"),
        ("as it is", "as it is"),
        (Share(0.125), "12.5%"),
        (Seconds(3600), "3,600.00 s"),
        (Seconds(0.9994), "999.40 ms"),
        (Seconds(-9.5e-4), "-950.00 µs"),
        (Seconds(0), "0.00 µs"),
        (Bytes(3 << 40), "3,072.00 GiB"),
        (Bytes(1536), "1.50 KiB"),
        (Bytes(1023), "1,023 bytes"),
    ],
)
def test_a_value_is_shown_in_the_unit_in_which_it_is_at_least_one(value: object, text: str) -> None:
    assert show(value) == text


def test_what_is_neither_time_nor_size_has_no_unit() -> None:
    assert quantities.unit(float, 5e9) is NO_UNIT


def test_one_of_a_thing_is_not_many() -> None:
    assert [counted(number, "turn") for number in (0, 1, 1_000)] == ["0 turns", "1 turn", "1,000 turns"]


def test_columns_of_nothing_but_numbers_stand_on_the_right() -> None:
    rows = [["a", 1, Seconds(1), True, None, None], ["b", 2.0, None, True, None, "none"]]
    assert Table(["name", *"abcde"], rows).numbers == [False, True, True, False, False, False]
