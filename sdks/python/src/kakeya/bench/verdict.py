"""What a gate says."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


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


EXIT_FAILED = 1
EXIT_UNDECIDED = 2


def exit_status(verdicts: Iterable[Verdict]) -> int:
    """1 where a gate failed, else 2 where one cannot be judged, else 0."""
    outcomes = {verdict.outcome for verdict in verdicts}
    if Outcome.FAILED in outcomes:
        return EXIT_FAILED
    return EXIT_UNDECIDED if Outcome.UNDECIDED in outcomes else 0
