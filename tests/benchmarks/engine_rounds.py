"""The interleaved part of `make bench-engine`: everybody in short bursts, in turns, so that noise hits all alike."""

import time
from collections.abc import Callable, Mapping, Sequence

from kakeya.bench.percentile import median
from tests.benchmarks.engine_case import DECODE, Case
from tests.benchmarks.engine_process import ContestantProcess

Seconds = dict[str, dict[str, list[list[float]]]]
"""By the case's and the contestant's name: of each round the seconds of a burst."""

_LEAST_TIMES = {DECODE: 3}
_MOST_TIMES = 30
_NUM_WARM_TIMES = 2
_SETTLE_SECONDS = 0.02  # threads of the one before spin for some milliseconds before they sleep

Takes = Callable[[str, Case], bool]


def measured(
    contestants: Mapping[str, ContestantProcess],
    cases: Sequence[Case],
    *,
    num_rounds: int,
    burst_seconds: float,
    takes: Takes = lambda name, case: True,
    on_round: Callable[[int], None] = lambda number: None,
) -> Seconds:
    """Measures every contestant in every case once a round, after a round that does not count.

    Args:
        takes: whether a contestant takes part in a case.
        on_round: called before each round that counts.

    Raises:
        ContestantFailed
    """
    pairs = [(name, case) for case in cases for name in contestants if takes(name, case)]
    num_times = {
        (name, case): burst_length(case, median(_burst(contestants[name], case, _NUM_WARM_TIMES)), burst_seconds)
        for name, case in pairs
    }
    seconds: Seconds = {case.name: {name: [] for name in contestants if takes(name, case)} for case in cases}
    for number in range(num_rounds):
        on_round(number)
        for case in cases:
            for name in order(list(seconds[case.name]), number):
                seconds[case.name][name].append(_burst(contestants[name], case, num_times[name, case]))
    return seconds


def burst_length(case: Case, seconds: float, burst_seconds: float) -> int:
    """How often a case is measured in a burst where it takes so many seconds."""
    return min(max(round(burst_seconds / seconds), _LEAST_TIMES.get(case.kind, 1)), _MOST_TIMES)


def order(names: Sequence[str], number: int) -> list[str]:
    """Of the contestants in a round: nobody always comes after the same one, or first."""
    first = number % len(names)
    rotated = [*names[first:], *names[:first]]
    return rotated[::-1] if number % 2 else rotated


def _burst(contestant: ContestantProcess, case: Case, num_times: int) -> list[float]:
    time.sleep(_SETTLE_SECONDS)
    return contestant.measure(case, num_times)
