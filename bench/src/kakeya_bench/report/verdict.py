"""What a gate says."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kakeya_bench.report.quantities import show


class Outcome(StrEnum):
    """How a gate was passed, or not."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"
    """What was measured is too little, or too noisy, for a judgement."""
    SKIPPED = "skipped"
    """Nobody asked."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a gate says of a run.

    Attributes:
        formula: what must hold, in words and numbers.
        reason: what was found.
        figures: what the formula was applied to.
    """

    gate: str
    outcome: Outcome
    formula: str
    reason: str
    figures: Mapping[str, object] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """As it stands in a report, below the gate's name."""
        return {
            "outcome": self.outcome.value,
            "formula": self.formula,
            "reason": self.reason,
            "figures": dict(self.figures),
        }


EXIT_FAILED = 1
EXIT_UNDECIDED = 2


def exit_status(verdicts: Iterable[Verdict]) -> int:
    """1 where a gate failed, else 2 where one cannot be judged, else 0."""
    outcomes = {verdict.outcome for verdict in verdicts}
    if Outcome.FAILED in outcomes:
        return EXIT_FAILED
    return EXIT_UNDECIDED if Outcome.UNDECIDED in outcomes else 0


def at_most(gate: str, what: str, value: float, bound: float) -> Verdict:
    """Of a value that may not be larger than its bound; both are `quantities` of the same kind, or plain numbers."""
    return _bounded(gate, what, value, bound, "<=", is_kept=value <= bound)


def at_least(gate: str, what: str, value: float, bound: float) -> Verdict:
    """As `at_most`, of one that may not be smaller."""
    return _bounded(gate, what, value, bound, ">=", is_kept=value >= bound)


def _bounded(gate: str, what: str, value: float, bound: float, sign: str, *, is_kept: bool) -> Verdict:
    return Verdict(
        gate,
        Outcome.PASSED if is_kept else Outcome.FAILED,
        f"{what} {sign} {show(bound)}",
        f"{what} {show(value)}, at {'most' if sign == '<=' else 'least'} {show(bound)}",
        {"value": value, "bound": bound},
    )
