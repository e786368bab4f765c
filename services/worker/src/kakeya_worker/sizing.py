"""How the slab is divided: plain integers from a model's facts and the settings."""

from dataclasses import dataclass, replace
from typing import Literal

import structlog

from kakeya_shared.process.service_process import StartError
from kakeya_shared.settings.window import MAX
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.verifier import ModelFacts

_log = structlog.get_logger()

DEFAULT_SLAB_BYTES = 1 << 30
MAX_DEFAULT_WINDOW = 4096
MIN_DEFAULT_LANES = 4
MIN_LARGEST_LANES = 2  # of the largest window: a conversation, and a fork of it or another one


@dataclass(frozen=True)
class SlabPlan:
    """The slab to allocate."""

    geometry: LaneGeometry
    num_lanes: int


def with_draft_lanes(facts: ModelFacts, draft_facts: ModelFacts) -> ModelFacts:
    """Of a model each of whose lanes comes with one of a draft model, for `plan`."""
    return replace(facts, kv_bytes_per_token=facts.kv_bytes_per_token + draft_facts.kv_bytes_per_token)


def plan(
    facts: ModelFacts,
    *,
    sink: int,
    window: int | Literal["max"] | None,
    chunk: int,
    num_lanes: int | None,
    slab_bytes: int | None,
) -> SlabPlan:
    """Chooses what is not given.

    Args:
        window: None for the largest sensible one, lowered until MIN_DEFAULT_LANES lanes fit; "max" for the largest of
            which `num_lanes`, or MIN_LARGEST_LANES, lanes fit.
        num_lanes: fixes the slab's size, but for a window of "max"; else `slab_bytes` does, by default
            DEFAULT_SLAB_BYTES.

    Raises:
        StartError: sink and window exceed the model's positions, or not one lane fits.
    """
    least = window if isinstance(window, int) else 1
    if sink + least > facts.max_positions:
        raise StartError(
            f"sink {sink} + window {least} exceed {facts.max_positions} positions, "
            f"{facts.max_positions_reason}; lower --window"
        )
    budget = slab_bytes or DEFAULT_SLAB_BYTES
    if window == MAX:
        window = _largest_window(facts, sink, chunk, budget, num_lanes or MIN_LARGEST_LANES)
    elif window is None:
        window = _default_window(facts, sink, chunk, budget if num_lanes is None else None)
    geometry = LaneGeometry(sink, window, chunk)
    lane_bytes = geometry.num_slots * facts.kv_bytes_per_token
    if num_lanes is None:
        num_lanes = budget // lane_bytes
    if not num_lanes:
        raise StartError(
            f"one lane of sink {sink} and window {window} takes {lane_bytes} bytes and the slab has {budget}; "
            "raise --slab-bytes or lower --window"
        )
    return SlabPlan(geometry, num_lanes)


def _largest_window(facts: ModelFacts, sink: int, chunk: int, budget: int, num_lanes: int) -> int:
    """As far as the model's positions and the slab go."""
    wanted = facts.max_positions - sink
    fitting = _fitting_window(facts.kv_bytes_per_token, sink, chunk, budget, num_lanes)
    if fitting < 1:
        raise StartError(f"{num_lanes} lanes do not fit a slab of {budget} bytes with any window; raise --slab-bytes")
    if fitting < wanted:
        _log.info("the slab bounds the window", window=fitting, positions=facts.max_positions, slab_bytes=budget)
    return min(wanted, fitting)


def _fitting_window(kv_bytes_per_token: int, sink: int, chunk: int, budget: int, num_lanes: int) -> int:
    """The largest of which so many lanes fit; below 1: none. A lane has one slot more for each token of its window."""
    return budget // (num_lanes * kv_bytes_per_token) - LaneGeometry(sink, 0, chunk).num_slots


def usual_lane(max_positions: int, kv_bytes_per_token: int, *, sink: int, chunk: int) -> LaneGeometry | None:
    """That of a worker which is told nothing of sizes; None where it could not start so."""
    wanted = min(MAX_DEFAULT_WINDOW, max_positions - sink)
    window = min(wanted, _fitting_window(kv_bytes_per_token, sink, chunk, DEFAULT_SLAB_BYTES, MIN_DEFAULT_LANES))
    return LaneGeometry(sink, window, chunk) if window >= 1 else None


def _default_window(facts: ModelFacts, sink: int, chunk: int, budget: int | None) -> int:
    wanted = min(MAX_DEFAULT_WINDOW, facts.max_positions - sink)
    if budget is None:
        return wanted
    fitting = _fitting_window(facts.kv_bytes_per_token, sink, chunk, budget, MIN_DEFAULT_LANES)
    if fitting >= wanted:
        return wanted
    if fitting < 1:
        raise StartError(
            f"{MIN_DEFAULT_LANES} lanes do not fit a slab of {budget} bytes with any window; raise --slab-bytes"
        )
    _log.warning("window lowered so that enough lanes fit", window=fitting, wanted=wanted, lanes=MIN_DEFAULT_LANES)
    return fitting
