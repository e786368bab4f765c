"""The integers of a lane: slots, runs, commits, and the invariants that watch them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_shared.errors import InvariantViolated
from kakeya_worker.engine.lane import Lane, LaneGeometry

geometries = st.builds(LaneGeometry, sink=st.integers(0, 8), window=st.integers(1, 80), chunk=st.integers(1, 40))


@given(geometries)
def test_the_ring_has_slack_and_whole_blocks(geometry: LaneGeometry) -> None:
    assert geometry.num_ring_slots >= geometry.window + geometry.chunk - 1
    assert geometry.num_ring_slots % 16 == 0
    assert geometry.num_ring_slots < geometry.window + geometry.chunk - 1 + 16
    assert geometry.num_slots == geometry.sink + geometry.num_ring_slots


@given(geometries, st.integers(0, 500), st.data())
def test_runs_are_the_slots_of_the_tokens_in_order(geometry: LaneGeometry, first: int, data: st.DataObject) -> None:
    first += geometry.sink
    end = first + data.draw(st.integers(0, geometry.num_ring_slots))
    runs = geometry.ring_runs(first, end)
    slots = [slot for run in runs for slot in range(run.start, run.stop)]
    assert slots == geometry.slots(np.arange(first, end), geometry.sink).tolist()
    assert len(runs) <= 2
    assert all(run.start < run.stop for run in runs)


@given(geometries, st.lists(st.integers(1, 40), max_size=30), st.data())
def test_live_slots_are_what_the_law_demands(geometry: LaneGeometry, sizes: list[int], data: st.DataObject) -> None:
    sink = data.draw(st.integers(0, geometry.sink))
    window = data.draw(st.integers(1, geometry.window))
    lane = Lane(geometry, 0, sink, window)
    assert lane.num_live_slots == 0
    for size in sizes:
        row = lane.row(tuple(range(min(size, geometry.chunk))))
        lane.commit(row)
        visible = [j for j in range(lane.length) if j < sink or j > lane.length - 1 - window]
        assert lane.num_live_slots == len(visible) == min(lane.length, sink + window)
        assert lane.num_evicted == lane.length - len(visible)
        assert set(visible) <= set(lane.slot_indices.tolist())


def test_a_lane_keeps_the_ids_of_retained_tokens() -> None:
    lane = Lane(LaneGeometry(sink=2, window=8, chunk=4), 0, sink=2, window=8)
    for start in range(0, 100, 4):
        lane.commit(lane.row(tuple(1000 + start + offset for offset in range(4))))
    held = dict(zip(lane.slot_indices.tolist(), lane.slot_token_ids.tolist(), strict=True))
    assert [held[index] for index in (0, 1, *range(92, 100))] == [1000 + index for index in (0, 1, *range(92, 100))]


def test_a_row_that_does_not_start_at_the_end_violates_inv2() -> None:
    lane = Lane(LaneGeometry(2, 8, 4), 0, 2, 8)
    row = lane.row((1, 2))
    lane.commit(row)
    with pytest.raises(InvariantViolated) as caught:
        lane.commit(row)
    assert caught.value.metadata == {"invariant": "inv2"}
    assert lane.length == 2


def test_a_lane_that_lost_a_slot_violates_inv1() -> None:
    lane = Lane(LaneGeometry(2, 8, 4), 0, 2, 8)
    lane.commit(lane.row((1, 2, 3)))
    lane.slot_indices[1] = -1
    with pytest.raises(InvariantViolated) as caught:
        lane.commit(lane.row((4,)))
    assert caught.value.metadata == {"invariant": "inv1"}
