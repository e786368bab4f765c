"""What the bursts say: pure arithmetic."""

from collections.abc import Mapping

import numpy as np

from kakeya_bench.engine.contestants import INT8, LLAMA, READ
from kakeya_bench.engine.rounds import Seconds
from kakeya_bench.report.verdict import Outcome, Verdict
from kakeya_bench.statistics import intervals
from kakeya_bench.statistics.distribution import median
from kakeya_bench.statistics.intervals import Interval

FLOOR = "step_over_floor"
LEAST = {
    "decode_1": 1.5,
    "decode_8": 2.5,
    "prefill_256": 3.0,
    "decode_1_w2048": 2.0,
    "decode_8_w2048": 3.0,
    "prefill_64_w2048": 1.3,
}
"""How many times as long llama.cpp takes as Kakeya's int8, at least."""
MOST = {FLOOR: 1.2}
"""A decode step of one session, in times of reading its weights once, at most."""


def rounds(seconds: Seconds, case: str, contestant: str) -> list[float]:
    """The median of each round's burst, in seconds."""
    return [median(burst) for burst in seconds[case][contestant]]


def typical(seconds: Seconds, case: str, contestant: str) -> float:
    """The median round, in seconds."""
    return median(rounds(seconds, case, contestant))


def ratios(seconds: Seconds, floor_case: str) -> dict[str, Interval]:
    """How many times as long llama.cpp takes as Kakeya's int8, by case; and int8's step in times of the floor."""
    against_llama = {case: _ratio(seconds[case], LLAMA, INT8) for case in seconds}
    return {**against_llama, FLOOR: _ratio(seconds[floor_case], INT8, READ)}


def _ratio(of_case: Mapping[str, list[list[float]]], numerator: str, denominator: str) -> Interval:
    """The median over rounds of what is divided within each round, whose moments of noise both have seen."""
    above, below = ([median(burst) for burst in of_case[name]] for name in (numerator, denominator))
    return intervals.of_median(list(np.divide(above, below)))


def verdicts(found: Mapping[str, Interval]) -> list[Verdict]:
    """On every bound whose ratio was measured."""
    bounds = [(name, "at least", bound) for name, bound in LEAST.items()]
    bounds += [(name, "at most", bound) for name, bound in MOST.items()]
    return [_verdict(name, found[name], relation, bound) for name, relation, bound in bounds if name in found]


def _verdict(name: str, found: Interval, relation: str, bound: float) -> Verdict:
    is_kept = found.estimate >= bound if relation == "at least" else found.estimate <= bound
    return Verdict(
        gate=name,
        outcome=Outcome.PASSED if is_kept else Outcome.FAILED,
        formula=f"{relation} {bound:g}",
        reason=f"{found.estimate:.2f} (95 %: {found.low:.2f} to {found.high:.2f})",
        figures={"estimate": found.estimate, "low": found.low, "high": found.high, "bound": bound},
    )
