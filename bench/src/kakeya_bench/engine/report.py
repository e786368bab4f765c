"""What a run found, as one JSON document."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kakeya_bench.engine.contestants import BFLOAT16, INT8, READ
from kakeya_bench.engine.figures import ratios, rounds, typical, verdicts
from kakeya_bench.engine.plan import Case
from kakeya_bench.engine.run import Run
from kakeya_bench.report.environment import environment
from kakeya_bench.report.verdict import Verdict
from kakeya_bench.statistics.intervals import Interval

Document = dict[str, Any]


def judged(run: Run) -> tuple[dict[str, Interval], list[Verdict]]:
    """All ratios by name, and what the bounds say of them."""
    found = ratios(run.seconds, run.plan.floor_case.name)
    return found, verdicts(found)


def document(run: Run) -> Document:
    """Everything; times are seconds, sizes bytes."""
    found, judgement = judged(run)
    return {
        "ratios": {verdict.gate: found[verdict.gate].estimate for verdict in judgement},
        "verdicts": [asdict(verdict) for verdict in judgement],
        "cases": [_case(run, case, found) for window in run.plan.windows for case in run.plan.cases(window)],
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
    return {
        "name": case.name,
        **asdict(case),
        "context": _context(run, case),
        "seconds": {name: typical(run.seconds, case.name, name) for name in run.engines},
        "rounds": {name: rounds(run.seconds, case.name, name) for name in run.engines},
        "llama_ratio": asdict(found[case.name]),
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
