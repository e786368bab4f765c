"""The integers of a lane: commits, what is live, and the invariants that watch them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_shared.errors.tree import InvariantViolated
from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window

geometries = st.builds(LaneGeometry, sink=st.integers(0, 8), window=st.integers(1, 80), chunk=st.integers(1, 40))


def _lane(geometry: LaneGeometry, **options: int) -> Lane:
    return Lane(geometry, 0, sink_window(SessionOptions(**options), geometry))  # type: ignore[arg-type]  # sink, window


@given(geometries, st.integers(1, 88))
def test_the_ring_has_slack_and_whole_blocks_and_fits(geometry: LaneGeometry, window: int) -> None:
    window = min(window, geometry.capacity)
    num_ring_slots = geometry.num_ring_slots(window)
    assert window + geometry.chunk - 1 <= num_ring_slots < window + geometry.chunk - 1 + 16
    assert num_ring_slots % 16 == 0
    assert geometry.capacity - window + num_ring_slots <= geometry.num_slots


@given(geometries, st.lists(st.integers(1, 40), max_size=30), st.data())
def test_live_slots_are_what_the_law_demands(geometry: LaneGeometry, sizes: list[int], data: st.DataObject) -> None:
    sink = data.draw(st.integers(0, geometry.capacity - 1))
    window = data.draw(st.integers(1, geometry.capacity - sink))
    lane = _lane(geometry, sink=sink, window=window)
    assert lane.num_live_slots == 0
    for size in sizes:
        row = lane.row(tuple(range(min(size, geometry.chunk))))
        lane.commit(row)
        visible = [j for j in range(lane.length) if j < sink or j > lane.length - 1 - window]
        assert lane.num_live_slots == len(visible) == min(lane.length, sink + window)
        assert lane.num_evicted == lane.length - len(visible)
        assert [j for part in lane.retained for j in part] == visible
        assert set(visible) <= set(lane.slot_indices.tolist())


def test_a_lane_keeps_the_ids_of_retained_tokens() -> None:
    lane = _lane(LaneGeometry(sink=2, window=8, chunk=4))
    for start in range(0, 100, 4):
        lane.commit(lane.row(tuple(1000 + start + offset for offset in range(4))))
    held = dict(zip(lane.slot_indices.tolist(), lane.slot_token_ids.tolist(), strict=True))
    assert [held[index] for index in (0, 1, *range(92, 100))] == [1000 + index for index in (0, 1, *range(92, 100))]


@given(geometries, st.lists(st.integers(1, 40), max_size=30))
def test_a_fork_holds_what_its_source_holds_and_goes_its_own_way(geometry: LaneGeometry, sizes: list[int]) -> None:
    lane = _lane(geometry)
    for size in sizes:
        lane.commit(lane.row(tuple(range(min(size, geometry.chunk)))))
    fork, held = lane.fork(5), lane.slot_indices.copy()
    assert (fork.index, fork.length, fork.num_live_slots) == (5, lane.length, lane.num_live_slots)
    assert fork.history_digest == lane.history_digest
    assert fork.num_used_slots == lane.num_used_slots == max(np.flatnonzero(held >= 0), default=-1) + 1
    fork.commit(fork.row((7,)))
    assert lane.length == fork.length - 1
    assert (lane.slot_indices == held).all()


def test_only_a_lane_that_refuses_to_forget_has_an_end() -> None:
    geometry = LaneGeometry(2, 8, 4)
    lane = _lane(geometry)
    assert lane.room is None
    lane = Lane(geometry, 0, lane.retention, refuses_overflow=True)
    assert lane.room == 10
    lane.commit(lane.row((1, 2, 3)))
    assert lane.room == 7


def test_a_row_that_does_not_start_at_the_end_violates_inv2() -> None:
    lane = _lane(LaneGeometry(2, 8, 4))
    row = lane.row((1, 2))
    lane.commit(row)
    with pytest.raises(InvariantViolated) as caught:
        lane.commit(row)
    assert caught.value.metadata == {"invariant": "inv2"}
    assert lane.length == 2


def test_a_lane_that_lost_a_slot_violates_inv1() -> None:
    lane = _lane(LaneGeometry(2, 8, 4))
    lane.commit(lane.row((1, 2, 3)))
    lane.slot_indices[1] = -1
    with pytest.raises(InvariantViolated) as caught:
        lane.commit(lane.row((4,)))
    assert caught.value.metadata == {"invariant": "inv1"}
