"""What steps took, of every size: those that were measured at start, and the latest of those that ran since.

The machine at start is not that of later: workers that start together are in each other's way. So whatever runs is
measured, and sizes that did not run for long count for less and less: they only tell what the others leave open.
"""

from collections import defaultdict, deque
from collections.abc import Iterable

import numpy as np
import structlog

from kakeya_worker.engine.steps.step_cost import FREE, MeasuredStep, StepCosts, fit

_log = structlog.get_logger()
NUM_SAMPLES = 4  # of a size
REFIT_STEPS = 32  # after so many more the costs are fitted again; a sample as old as that counts half


class StepMeasures:
    """Steps in which somebody generates.

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
