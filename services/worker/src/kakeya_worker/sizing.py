"""How the slab is divided: plain integers from a model's facts and the settings."""

from dataclasses import dataclass

import structlog

from kakeya_shared.process.service_process import StartError
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.verifier import ModelFacts

_log = structlog.get_logger()

DEFAULT_SLAB_BYTES = 1 << 30
MAX_DEFAULT_WINDOW = 4096
MIN_DEFAULT_LANES = 4


@dataclass(frozen=True)
class SlabPlan:
    """The slab to allocate."""

    geometry: LaneGeometry
    num_lanes: int


def plan(
    facts: ModelFacts, *, sink: int, window: int | None, chunk: int, num_lanes: int | None, slab_bytes: int | None
) -> SlabPlan:
    """Chooses what is not given.

    Args:
        window: None for the largest sensible one, lowered until MIN_DEFAULT_LANES lanes fit.
        num_lanes: fixes the slab's size; else `slab_bytes` does, by default DEFAULT_SLAB_BYTES.

    Raises:
        StartError: sink and window exceed the model's positions, or not one lane fits.
    """
    budget = None if num_lanes is not None else slab_bytes or DEFAULT_SLAB_BYTES
    if sink + (window or 1) > facts.max_positions:
        raise StartError(
            f"sink {sink} + window {window or 1} exceed {facts.max_positions} positions, "
            f"{facts.max_positions_reason}; lower --window"
        )
    if window is None:
        window = _default_window(facts, sink, chunk, budget)
    geometry = LaneGeometry(sink, window, chunk)
    lane_bytes = geometry.num_slots * facts.kv_bytes_per_token
    if budget is not None:
        num_lanes = budget // lane_bytes
    if not num_lanes:
        raise StartError(
            f"one lane of sink {sink} and window {window} takes {lane_bytes} bytes and the slab has {budget}; "
            "raise --slab-bytes or lower --window"
        )
    return SlabPlan(geometry, num_lanes)


def _default_window(facts: ModelFacts, sink: int, chunk: int, budget: int | None) -> int:
    wanted = min(MAX_DEFAULT_WINDOW, facts.max_positions - sink)
    if budget is None:
        return wanted
    num_slots = budget // (MIN_DEFAULT_LANES * facts.kv_bytes_per_token)
    num_excess = LaneGeometry(sink, wanted, chunk).num_slots - num_slots
    if num_excess <= 0:
        return wanted
    fitting = wanted - num_excess  # a lane has one slot more for each token of its window
    if fitting < 1:
        raise StartError(
            f"{MIN_DEFAULT_LANES} lanes do not fit a slab of {budget} bytes with any window; raise --slab-bytes"
        )
    _log.warning("window lowered so that enough lanes fit", window=fitting, wanted=wanted, lanes=MIN_DEFAULT_LANES)
    return fitting
