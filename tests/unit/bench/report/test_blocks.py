"""What reports have in common, before it is a page or lines."""

from typing import Any

import pytest

from kakeya_bench.report import blocks
from kakeya_bench.report.blocks import Badge, Table
from kakeya_bench.report.quantities import show
from kakeya_bench.report.verdict import Outcome, Verdict, exit_status

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
        ["cpu", "EPYC"], ["cores", "2"], ["none", "\N{EN DASH}"], ["load", "0.5, 2"],
        ["versions", "kakeya 0.1, at b 2"],
    ]  # fmt: skip


def test_the_first_failures_are_listed() -> None:
    turns: list[dict[str, Any]] = [{"turn_index": index, "error": None} for index in range(3)]
    assert blocks.failures(turns, ["turn_index"]) == []
    turns += [{"turn_index": index, "error": f"no {index}"} for index in range(3, 1_033)]
    (section,) = blocks.failures(turns, ["turn_index"])
    shown, table = section.blocks
    assert (shown, isinstance(table, Table) and table.columns) == ("20 of 1,030.", ["turn index", "error"])
    assert isinstance(table, Table)
    assert (table.rows[0], len(table.rows)) == ([3, "no 3"], 20)
