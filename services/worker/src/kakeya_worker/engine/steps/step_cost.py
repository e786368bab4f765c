"""What a step costs: seconds, linear in its tokens and in the slots that they see.

The fixed part is what reading the weights takes, however few tokens there are; a token adds its products, and each
slot that it sees its part of attention: with a long window, most of the price of a prefill.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_NUM_COSTS = 3


class MeasuredStep(NamedTuple):
    """A step with logits. Its visible slots are summed over its tokens: |V(p)| for the token at p."""

    num_tokens: int
    num_visible_slots: int
    seconds: float


@dataclass(frozen=True)
class StepCosts:
    """Attributes:
    step_seconds: of any step.
    token_seconds: that each of its tokens adds.
    slot_seconds: that each visible slot of each token adds.
    """

    step_seconds: float
    token_seconds: float
    slot_seconds: float

    def seconds(self, num_tokens: int, num_visible_slots: int) -> float:
        """Of a step."""
        return self.step_seconds + num_tokens * self.token_seconds + num_visible_slots * self.slot_seconds

    def added_seconds(self, num_visible_slots: int) -> float:
        """Of one token more that sees so many slots."""
        return self.token_seconds + num_visible_slots * self.slot_seconds


FREE = StepCosts(0.0, 0.0, 0.0)  # as long as nothing is measured


def fit(measured: Sequence[MeasuredStep], weights: Sequence[float] | None = None) -> StepCosts:
    """The costs, none negative, with the least sum of squared errors relative to what was measured.

    So a short step counts as much as a long one, and one that something disturbed hardly counts.

    Args:
        weights: of the squares; None for equal ones.

    Raises:
        numpy.linalg.LinAlgError: a step took no time, or none that is a number.
    """
    roots = np.sqrt(np.ones(len(measured)) if weights is None else np.array(weights))
    seconds = np.array([step.seconds for step in measured])
    if not (np.isfinite(seconds) & (seconds > 0.0)).all():
        raise np.linalg.LinAlgError("a step took no time, or none that is a number")
    sizes = np.array([(1.0, step.num_tokens, step.num_visible_slots) for step in measured])
    return StepCosts(*map(float, _least_squares(sizes * (roots / seconds)[:, None], roots)))


def _least_squares(table: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """The x >= 0 for which the table [steps, costs] times x is nearest to what is wanted [steps].

    At the optimum the costs above zero are an unconstrained optimum of their own: with so few, all choices are tried.
    """
    best, least_error = np.zeros(_NUM_COSTS), np.inf
    choices = (list(chosen) for num in range(1, _NUM_COSTS + 1) for chosen in combinations(range(_NUM_COSTS), num))
    for chosen in choices:
        costs = np.zeros(_NUM_COSTS)
        costs[chosen] = np.linalg.lstsq(table[:, chosen], wanted, rcond=None)[0]
        error = float(np.sum((table @ costs - wanted) ** 2))
        if costs.min() >= 0.0 and error < least_error:
            best, least_error = costs, error
    return best
