"""The policy sink-window against the law, written down naively; and what a lane can be asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_shared.errors.tree import InvalidField
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, SinkWindow, sink_window
from kakeya_worker.engine.seams.row import Row

geometries = st.builds(LaneGeometry, sink=st.integers(0, 8), window=st.integers(1, 40), chunk=st.integers(1, 20))


@st.composite
def policies(draw: st.DrawFn) -> tuple[LaneGeometry, SinkWindow]:
    """A lane, and a session's division of it."""
    geometry = draw(geometries)
    sink = draw(st.integers(0, geometry.capacity - 1))
    window = draw(st.integers(1, geometry.capacity - sink))
    return geometry, sink_window(SessionOptions(sink=sink, window=window), geometry)


def _visible(sink: int, window: int, p: int) -> list[int]:
    """V(p)"""
    return [j for j in range(p + 1) if j < sink or j > p - window]


@given(policies(), st.integers(0, 300))
def test_a_token_sees_what_the_law_says(policy: tuple[LaneGeometry, SinkWindow], p: int) -> None:
    _, retention = policy
    indices = np.arange(p + 20)
    sees = retention.visible(np.array(p), indices)
    assert indices[sees].tolist() == _visible(retention.sink, retention.window, p)
    assert sees.sum() <= retention.capacity


@given(policies(), st.integers(0, 300))
def test_retained_is_what_the_last_token_saw(policy: tuple[LaneGeometry, SinkWindow], length: int) -> None:
    _, retention = policy
    retained = retention.retained(length)
    assert [j for part in retained for j in part] == _visible(retention.sink, retention.window, length - 1)
    assert all(part for part in retained)  # no empty range is told
    assert len(retained) <= 2


@given(policies(), st.integers(0, 300), st.data())
def test_a_rows_keys_are_what_its_queries_see_in_order_of_history(
    policy: tuple[LaneGeometry, SinkWindow], start: int, data: st.DataObject
) -> None:
    geometry, retention = policy
    num_tokens = data.draw(st.integers(1, geometry.chunk))
    row = Row(0, start, (7,) * num_tokens, retention)
    queries = range(start, start + num_tokens)
    seen = sorted({j for p in queries for j in _visible(retention.sink, retention.window, p)})
    assert row.keys.tolist() == seen
    for p, sees in zip(queries, row.visible, strict=True):
        assert row.keys[sees].tolist() == _visible(retention.sink, retention.window, p)
    assert row.positions.tolist() == list(queries)
    assert row.sink_positions.tolist() == [min(p, retention.capacity - 1) for p in queries]


@given(policies(), st.integers(0, 300), st.data())
def test_what_a_row_overwrites_is_already_invisible_to_it(
    policy: tuple[LaneGeometry, SinkWindow], start: int, data: st.DataObject
) -> None:
    geometry, retention = policy
    num_tokens = data.draw(st.integers(1, geometry.chunk))
    row = Row(0, start, (7,) * num_tokens, retention)
    slots = retention.slots(row.keys).tolist()
    assert len(set(slots)) == len(slots)  # no two keys that the row sees share a slot
    assert set(row.slots.tolist()) <= set(range(geometry.num_slots))
    assert max(slots) < geometry.num_slots


@pytest.mark.parametrize(
    ("options", "divided"),
    [
        (SessionOptions(), (4, 64)),
        (SessionOptions(sink=0), (0, 64)),
        (SessionOptions(sink=20), (20, 48)),
        (SessionOptions(sink=67), (67, 1)),
        (SessionOptions(window=10), (4, 10)),
        (SessionOptions(sink=0, window=68), (0, 68)),
        (SessionOptions(pin=2), (4, 64)),
        (SessionOptions(pin=30), (30, 38)),
        (SessionOptions(sink=40, pin=30), (40, 28)),
        (SessionOptions(pin=30, window=38), (30, 38)),
    ],
)
def test_a_session_divides_the_lane(options: SessionOptions, divided: tuple[int, int]) -> None:
    retention = sink_window(options, LaneGeometry(sink=4, window=64, chunk=32))
    assert (retention.sink, retention.window) == divided


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (SessionOptions(sink=68), "sink"),
        (SessionOptions(pin=68), "pin"),
        (SessionOptions(sink=5, pin=100), "pin"),
        (SessionOptions(window=0), "window"),
        (SessionOptions(window=65), "window"),
        (SessionOptions(sink=40, window=29), "window"),
        (SessionOptions(pin=31, window=38), "window"),
    ],
)
def test_what_the_lane_cannot_hold_is_refused(options: SessionOptions, field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        sink_window(options, LaneGeometry(sink=4, window=64, chunk=32))
    assert caught.value.metadata == {"field": field}
