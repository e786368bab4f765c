"""How many drafts each session of a step should have: as long as one more brings more than it costs.

A step brings each generating session one token; a draft that is right brings one more. It is worth its price where that
is likelier than what the step brings anyway in the time that the draft adds. So the step brings the most tokens a
second. Who shares the step and gains less from it waits hardly longer for that.
"""

from collections.abc import Sequence
from typing import NamedTuple

MAX_SLOWDOWN = 1.05  # of any session in the step, in expected tokens a second
_UNKNOWN_PART = 1 / 16  # of a step, that a draft adds where nothing was measured


class Candidate(NamedTuple):
    """A generating session.

    Attributes:
        share: of its drafts that are right, each behind right ones.
        most: drafts that it can have; 0: it has no part in this, but it waits for those of others.
        seconds: that one adds to the step.
    """

    share: float
    most: int
    seconds: float


class _Plan:
    """Drafts of a step, one after the other."""

    def __init__(self, candidates: Sequence[Candidate], step_seconds: float) -> None:
        self._candidates = candidates
        self._least_seconds = step_seconds
        self.seconds = step_seconds
        self.depths = [0] * len(candidates)
        self._gains = [1.0] * len(candidates)  # tokens that the step is expected to bring each

    @property
    def tokens_a_second(self) -> float:
        return sum(self._gains) / self.seconds

    @property
    def slows_somebody_down(self) -> bool:
        return self.seconds > MAX_SLOWDOWN * self._least_seconds * min(self._gains)

    def worth(self, index: int) -> float:
        """Expected tokens a second of one draft more."""
        each = self._candidates[index]
        return float(each.share ** (self.depths[index] + 1)) / each.seconds

    def add(self, index: int) -> None:
        each = self._candidates[index]
        self.depths[index] += 1
        self._gains[index] += each.share ** self.depths[index]
        self.seconds += each.seconds

    def remove(self, index: int) -> None:
        each = self._candidates[index]
        self._gains[index] -= each.share ** self.depths[index]
        self.depths[index] -= 1
        self.seconds -= each.seconds

    def can_have_more(self, index: int) -> bool:
        return self.depths[index] < self._candidates[index].most


def depths(candidates: Sequence[Candidate], step_seconds: float, num_tokens: int) -> list[int]:
    """The number of drafts of each.

    Args:
        candidates: all that generate in the step.
        step_seconds: of the step without drafts; 0: not known.
        num_tokens: that the step still has room for.
    """
    if step_seconds <= 0.0:
        candidates, step_seconds = [each._replace(seconds=_UNKNOWN_PART) for each in candidates], 1.0
    candidates = [each._replace(seconds=max(each.seconds, step_seconds * 1e-6)) for each in candidates]
    plan = _Plan(candidates, step_seconds)
    added: list[int] = []
    drafting = [index for index in range(len(candidates)) if plan.can_have_more(index)]
    while drafting and len(added) < num_tokens:
        best = max(drafting, key=plan.worth)
        if plan.worth(best) <= plan.tokens_a_second:
            break
        plan.add(best)
        added.append(best)
        if not plan.can_have_more(best):
            drafting.remove(best)
    while added and plan.slows_somebody_down:
        plan.remove(added.pop())  # the one that was worth least
    return plan.depths
