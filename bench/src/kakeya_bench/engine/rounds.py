"""The interleaved part: everybody in short bursts, in turns, so that noise hits all alike."""

import time
from collections.abc import Mapping, Sequence

from kakeya_bench.engine.contestants import Contestant
from kakeya_bench.engine.plan import DECODE, Case
from kakeya_bench.rivals.command import say
from kakeya_bench.statistics.distribution import median

Seconds = dict[str, dict[str, list[list[float]]]]
"""By the case's and the contestant's name: of each round the seconds of a burst."""

_LEAST_TIMES = {DECODE: 3}
_MOST_TIMES = 30
_NUM_WARM_TIMES = 2
_SETTLE_SECONDS = 0.02  # threads of the one before spin for some milliseconds before they sleep


def measured(contestants: Mapping[Case, Mapping[str, Contestant]], num_rounds: int, burst_seconds: float) -> Seconds:
    """Measures the contestants of each case once a round, after a round that does not count. Raises CallFailed."""
    num_times = {
        (case, name): burst_length(case, median(_burst(each, case, _NUM_WARM_TIMES)), burst_seconds)
        for case, by_name in contestants.items()
        for name, each in by_name.items()
    }
    seconds: Seconds = {case.name: {name: [] for name in by_name} for case, by_name in contestants.items()}
    for number in range(num_rounds):
        say(f"window {next(iter(contestants)).window}: round {number + 1} of {num_rounds}")
        for case, by_name in contestants.items():
            for name in order(list(by_name), number):
                seconds[case.name][name].append(_burst(by_name[name], case, num_times[case, name]))
    return seconds


def burst_length(case: Case, seconds: float, burst_seconds: float) -> int:
    """How often a case is measured in a burst where it takes so many seconds."""
    return min(max(round(burst_seconds / seconds), _LEAST_TIMES.get(case.kind, 1)), _MOST_TIMES)


def order(names: Sequence[str], number: int) -> list[str]:
    """Of the contestants in a round: nobody always comes after the same one, or first."""
    first = number % len(names)
    rotated = [*names[first:], *names[:first]]
    return rotated[::-1] if number % 2 else rotated


def _burst(contestant: Contestant, case: Case, num_times: int) -> list[float]:
    time.sleep(_SETTLE_SECONDS)
    return contestant.measure(case, num_times)
