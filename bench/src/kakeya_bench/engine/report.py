"""What a run found: what its bursts say, and all of it as one JSON document."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from kakeya_bench.engine import int8_kv
from kakeya_bench.engine.contestants import BFLOAT16, INT8, INT8_KV, LLAMA, READ
from kakeya_bench.engine.plan import Case
from kakeya_bench.engine.run import Run, Seconds
from kakeya_bench.report.environment import environment
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
Document = dict[str, Any]


def rounds(seconds: Seconds, case: str, contestant: str) -> list[float]:
    """The median of each round's burst, in seconds."""
    return [median(burst) for burst in seconds[case][contestant]]


def typical(seconds: Seconds, case: str, contestant: str) -> float:
    """The median round, in seconds."""
    return median(rounds(seconds, case, contestant))


def ratios(seconds: Seconds, floor_case: str) -> dict[str, Interval]:
    """How many times as long llama.cpp takes as Kakeya's int8, by case, and others as int8 with int8 KV, by gate; and
    int8's step in times of the floor.
    """
    against_llama = {case: _ratio(seconds[case], LLAMA, INT8) for case in seconds}
    of_int8_kv = {
        int8_kv.gate(case, rival): _ratio(by_name, rival, INT8_KV)
        for case, by_name in seconds.items()
        for rival in int8_kv.RIVALS
        if {rival, INT8_KV} <= set(by_name)
    }
    return {**against_llama, **of_int8_kv, FLOOR: _ratio(seconds[floor_case], INT8, READ)}


def _ratio(of_case: Mapping[str, list[list[float]]], numerator: str, denominator: str) -> Interval:
    """The median over rounds of what is divided within each round, whose moments of noise both have seen."""
    above, below = ([median(burst) for burst in of_case[name]] for name in (numerator, denominator))
    return intervals.of_median(list(np.divide(above, below)))


def verdicts(found: Mapping[str, Interval], kernel: str | None) -> list[Verdict]:
    """On every bound whose ratio was measured, with this variant of Kakeya's kernel."""
    bounds = [(name, "at least", bound) for name, bound in {**LEAST, **int8_kv.bounds(kernel)}.items()]
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


def judged(run: Run) -> tuple[dict[str, Interval], list[Verdict]]:
    """All ratios by name, and what the bounds say of them."""
    found = ratios(run.seconds, run.plan.floor_case.name)
    return found, verdicts(found, run.cached[INT8_KV]["kernel"])


def part(run: Run) -> Document:
    """What a run has measured so far: seconds of bursts by case and contestant, and what these said of sessions."""
    sessions = {str(window): opened for window, opened in run.opened.items()}
    return {"seconds": run.seconds, "sessions": sessions, "environment": environment()}


def document(run: Run) -> Document:
    """Everything; times are seconds, sizes bytes."""
    found, judgement = judged(run)
    return {
        "ratios": {verdict.gate: found[verdict.gate].estimate for verdict in judgement},
        "verdicts": [asdict(verdict) for verdict in judgement],
        "cases": [_case(run, case, found) for case in run.plan.all_cases],
        "floor": _floor(run),
        "large_chunk": _large_chunk(run),
        "loading": {name: {"cold": run.cold[name], "cached": run.cached[name]} for name in run.engines},
        "memory": {"case": run.plan.largest.name, **run.serving},
        "sessions": {str(window): opened for window, opened in run.opened.items()},
        "plan": {**asdict(run.plan), "shape": dict(run.plan.shape)},
        "environment": {**environment(), "load_average_before": run.load_average},
        "duration_seconds": run.duration_seconds,
    }


def _case(run: Run, case: Case, found: Mapping[str, Interval]) -> Document:
    measured = [name for name in run.engines if name in run.seconds[case.name]]
    return {
        "name": case.name,
        **asdict(case),
        "context": _context(run, case),
        "seconds": {name: typical(run.seconds, case.name, name) for name in measured},
        "rounds": {name: rounds(run.seconds, case.name, name) for name in measured},
        "llama_ratio": asdict(found[case.name]),
        "int8_kv_ratios": {name: asdict(ratio) for name, ratio in int8_kv.of_case(found, case.name).items()},
    }


def _context(run: Run, case: Case) -> Document:
    """Tokens that a session holds before, and the keys that its new tokens see, the first and the last."""
    history = run.opened[case.window][INT8]["history_tokens"]
    held = case.num_held_tokens
    return {
        "kakeya": {"tokens_before_at_least": history, "keys": [case.window, case.window]},
        "others": {"tokens_before": held, "keys": [held + 1, held + case.num_new_tokens]},
    }


def _floor(run: Run) -> Document:
    case = run.plan.floor_case.name
    seconds, num_bytes = typical(run.seconds, case, READ), run.cached[READ]["num_bytes"]
    return {
        "case": case,
        "weight_bytes": num_bytes,
        "seconds": seconds,
        "rounds": rounds(run.seconds, case, READ),
        "bytes_per_second": num_bytes / seconds,
        "step_seconds": typical(run.seconds, case, INT8),
    }


def _large_chunk(run: Run) -> Document:
    return {
        "chunk": run.plan.large_chunk,
        "window": min(run.plan.windows),
        "seconds": {
            case: {name: typical(run.large_chunk, case, name) for name in (INT8, BFLOAT16)} for case in run.large_chunk
        },
    }
