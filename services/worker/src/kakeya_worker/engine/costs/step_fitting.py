"""Measures what steps cost on the machine at hand, on a slab that no session has used yet.

The steps are of made-up tokens over whatever the memory holds: what they compute is not looked at, and nobody ever
sees it, since a session sees only what it wrote itself.
"""

import math
import time
from collections.abc import Sequence

import structlog

from kakeya_worker.engine.costs.step_costs import MeasuredStep, StepMeasures
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import Retention, RetentionPolicy, SessionOptions
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.seams.verifier import Verifier

_log = structlog.get_logger()
FITTING_SECONDS = 1.0  # after which only those steps are still run that are needed
NUM_ROUNDS = 10  # of all steps; of each the shortest counts, since whatever disturbs a step makes it longer
NUM_NEEDED = 3  # steps that tell all costs
_LANE = 0


def fit_costs(
    measures: StepMeasures, verifier: Verifier, geometry: LaneGeometry, retention: RetentionPolicy, num_lanes: int
) -> None:
    """Measures, and begins `measures` with that. Where measuring fails, only the tokens of a step stay bounded."""
    try:
        measures.start(measure_steps(verifier, geometry, retention(SessionOptions(), geometry), num_lanes))
    except Exception:  # of a backend: without costs a worker runs as well, only less evenly
        _log.warning("steps were not measured, only their tokens are bounded", exc_info=True)
        return
    _log.info(
        "step costs",
        milliseconds_per_step=round(1e3 * measures.costs.step_seconds, 3),
        milliseconds_per_token=round(1e3 * measures.costs.token_seconds, 3),
        milliseconds_per_1000_visible_slots=round(1e6 * measures.costs.slot_seconds, 3),
    )


def measure_steps(
    verifier: Verifier, geometry: LaneGeometry, retention: Retention, num_lanes: int = 2
) -> list[MeasuredStep]:
    """A few kinds of steps in which a session generates, alone or beside a prefill; of one lane, with drafts."""
    # Makes the memory of one lane real: pages that were never written are all one page, which is read too fast.
    verifier.populate_lane(_LANE)
    # The few pages that it gets here are small ones. Of all lanes the last is the latest that a session takes.
    other_lane = num_lanes - 1
    steps = _steps(geometry.chunk, retention, other_lane)
    if other_lane != _LANE:
        verifier.copy_lane(other_lane, _LANE, geometry.num_slots)  # where a system does not make pages when asked
    else:
        steps = [rows[-1:] for rows in steps]
    _run(verifier, steps[0])  # whatever is done only once
    ends = time.perf_counter() + FITTING_SECONDS
    seconds = [math.inf] * len(steps)
    for number in range(NUM_ROUNDS * len(steps)):
        if number >= NUM_NEEDED and time.perf_counter() > ends:
            break
        index = number % len(steps)
        seconds[index] = min(seconds[index], _run(verifier, steps[index]))
    return [_measured(rows, shortest) for rows, shortest in zip(steps, seconds, strict=True) if shortest < math.inf]


def _steps(chunk: int, retention: Retention, other_lane: int) -> list[list[Row]]:
    """The first ones tell all costs, the others make them truer."""
    far = 2 * retention.capacity  # tokens there see all that is ever kept
    generate = Row(other_lane, 0, (0,), retention)
    beside = [
        [generate, Row(_LANE, start, (0,) * num_tokens, retention)]
        for num_tokens in (max(1, chunk // 8), max(1, chunk // 2))
        for start in (far, 0)
    ]
    return [[generate], [Row(_LANE, far, (0,), retention)], *beside]


def _run(verifier: Verifier, rows: Sequence[Row]) -> float:
    """Seconds of a step in which the first row's session generates."""
    started = time.perf_counter()
    verifier.forward(rows)
    verifier.logits([rows[0].lane])
    return time.perf_counter() - started


def _measured(rows: Sequence[Row], seconds: float) -> MeasuredStep:
    num_visible_slots = sum(int(row.visible.sum()) for row in rows)
    return MeasuredStep(sum(len(row.token_ids) for row in rows), num_visible_slots, seconds)
