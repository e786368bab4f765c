"""What the bursts of `make bench-engine` say: pure arithmetic."""

from collections.abc import Mapping

import numpy as np

from kakeya.bench.bootstrap import Interval
from kakeya.bench.percentile import median
from kakeya.bench.verdict import Outcome, Verdict
from tests.benchmarks.engine_case import DECODE, Case
from tests.benchmarks.engine_contestants import INT8, LLAMA, READ
from tests.benchmarks.engine_plan import Plan
from tests.benchmarks.engine_rounds import Seconds
from tests.benchmarks.interval import interval_of_median

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


def floor_case(plan: Plan) -> Case:
    """The case beside which memory is read: one session and few keys, so that a step is little but its weights."""
    return Case(DECODE, 1, min(plan.windows))


def rounds(seconds: Seconds, case: str, contestant: str) -> list[float]:
    """The median of each round's burst, in seconds."""
    return [median(burst) for burst in seconds[case][contestant]]


def typical(seconds: Seconds, case: str, contestant: str) -> float:
    """The median round, in seconds."""
    return median(rounds(seconds, case, contestant))


def ratio(numerators: list[float], denominators: list[float]) -> Interval:
    """The median over rounds of what is divided within each round, whose moments of noise both have seen."""
    by_round = np.array(numerators) / np.array(denominators)
    return Interval(float(np.median(by_round)), *interval_of_median(by_round))


def llama_ratios(seconds: Seconds) -> dict[str, Interval]:
    """How many times as long llama.cpp takes as Kakeya's int8, by case."""
    return {
        case: ratio(rounds(seconds, case, LLAMA), rounds(seconds, case, INT8))
        for case, by_contestant in seconds.items()
        if LLAMA in by_contestant
    }


def floor_ratio(seconds: Seconds, case: str) -> Interval:
    """A step of int8 in times of reading its weights."""
    return ratio(rounds(seconds, case, INT8), rounds(seconds, case, READ))


def verdicts(ratios: Mapping[str, Interval]) -> list[Verdict]:
    """On every bound whose ratio was measured."""
    bounds = [(name, "at least", bound) for name, bound in LEAST.items()]
    bounds += [(name, "at most", bound) for name, bound in MOST.items()]
    return [_verdict(name, ratios[name], relation, bound) for name, relation, bound in bounds if name in ratios]


def _verdict(name: str, found: Interval, relation: str, bound: float) -> Verdict:
    is_kept = found.estimate >= bound if relation == "at least" else found.estimate <= bound
    return Verdict(
        gate=name,
        outcome=Outcome.PASSED if is_kept else Outcome.FAILED,
        formula=f"{relation} {bound:g}",
        reason=f"{found.estimate:.2f} (95 %: {found.low:.2f} to {found.high:.2f})",
        figures={"estimate": found.estimate, "low": found.low, "high": found.high, "bound": bound},
    )
