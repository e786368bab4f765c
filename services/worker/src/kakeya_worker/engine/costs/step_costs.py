"""What steps cost: seconds, linear in a step's tokens and in the slots that they see, fitted to what steps took.

The fixed part is what reading the weights takes, however few tokens there are; a token adds its products, and each
slot that it sees its part of attention: with a long window, most of the price of a prefill.

The machine at start is not that of later: workers that start together are in each other's way. So whatever runs is
measured, and sizes that did not run for long count for less and less: they only tell what the others leave open.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
import structlog
from numpy.typing import NDArray

_log = structlog.get_logger()
NUM_SAMPLES = 4  # of a size
REFIT_STEPS = 32  # after so many more the costs are fitted again; a sample as old as that counts half
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


class StepMeasures:
    """What steps in which a session generates took, of every size: those measured at start, and the latest since.

    Attributes:
        costs: fitted to them; free until `start`. Where a fit fails they stay as they are.
    """

    def __init__(self) -> None:
        self.costs: StepCosts = FREE
        self._samples: defaultdict[tuple[int, int], deque[tuple[int, MeasuredStep]]] = defaultdict(_new_samples)
        self._num_steps = 0
        self._has_warned = False

    def start(self, measured: Iterable[MeasuredStep]) -> None:
        """Begins with steps that tell all costs."""
        for step in measured:
            self._keep(step)
        self._fit()

    def add(self, step: MeasuredStep) -> None:
        """Tells what a step took; without effect before `start`, since steps that are all alike tell no costs."""
        if not self._samples:
            return
        self._num_steps += 1
        self._keep(step)
        if self._num_steps % REFIT_STEPS == 0:
            self._fit()

    def _keep(self, step: MeasuredStep) -> None:
        size = step.num_tokens.bit_length(), step.num_visible_slots.bit_length()
        self._samples[size].append((self._num_steps, step))

    def _fit(self) -> None:
        samples = [sample for of_size in self._samples.values() for sample in of_size]
        weights = [REFIT_STEPS / (REFIT_STEPS + self._num_steps - number) for number, _ in samples]
        try:
            self.costs = fit([step for _, step in samples], weights)
        except np.linalg.LinAlgError as error:
            if not self._has_warned:
                _log.warning("the costs of steps cannot be fitted and stay as they are", problem=str(error))
            self._has_warned = True


def _new_samples() -> deque[tuple[int, MeasuredStep]]:
    return deque(maxlen=NUM_SAMPLES)
