"""What every retention policy must keep, whatever it retains: checked for each one that is installed."""

from functools import cache
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kakeya_shared import plugins
from kakeya_shared.errors.tree import InvalidField
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import Retention, RetentionPolicy, SessionOptions
from kakeya_worker.engine.seams.row import Row

POLICIES = "kakeya.retention"
COUNTS = st.integers(0, 40)
LENGTHS = st.integers(0, 400)

untimed = settings(deadline=None)  # busy machines take their time
every_policy = pytest.mark.parametrize("policy_name", plugins.names(POLICIES))


@st.composite
def lanes(draw: st.DrawFn) -> tuple[LaneGeometry, SessionOptions]:
    """Any lane, and any wish: also those that it cannot hold."""
    geometry = LaneGeometry(draw(COUNTS), draw(st.integers(1, 60)), draw(st.integers(1, 40)))
    options = SessionOptions(draw(st.none() | COUNTS), draw(st.none() | COUNTS), draw(st.just(0) | COUNTS))
    return geometry, options


@cache
def _policy(name: str) -> RetentionPolicy:
    policy: RetentionPolicy = plugins.load(POLICIES, name)
    return policy


def _retention(policy_name: str, lane: tuple[LaneGeometry, SessionOptions]) -> Retention:
    policy = _policy(policy_name)
    geometry, options = lane
    try:
        return policy(options, geometry)
    except InvalidField as refused:
        assert refused.metadata["field"] in ("sink", "window", "pin")
        assume(False)  # hypothesis's way to pass over an example
        raise


def _retained(retention: Retention, length: int) -> list[int]:
    return list(chain.from_iterable(retention.retained(length)))


@every_policy
@untimed
@given(lane=lanes())
def test_what_is_asked_for_is_given(policy_name: str, lane: tuple[LaneGeometry, SessionOptions]) -> None:
    geometry, options = lane
    retention = _retention(policy_name, lane)
    assert retention.window >= 1
    assert retention.sink >= options.pin
    assert retention.sink + retention.window <= retention.capacity <= geometry.capacity
    if options.sink is not None:
        assert retention.sink == max(options.sink, options.pin)
    if options.window is not None:
        assert retention.window == options.window


@every_policy
@untimed
@given(geometry=st.builds(LaneGeometry, COUNTS, st.integers(1, 60), st.integers(1, 40)))
def test_a_session_without_wishes_has_the_lane(policy_name: str, geometry: LaneGeometry) -> None:
    retention = _retention(policy_name, (geometry, SessionOptions()))
    assert (retention.sink, retention.window) == (geometry.sink, geometry.window)


@every_policy
@untimed
@given(lane=lanes(), length=LENGTHS)
def test_what_is_retained_is_what_the_last_token_sees(
    policy_name: str, lane: tuple[LaneGeometry, SessionOptions], length: int
) -> None:
    retention = _retention(policy_name, lane)
    history = np.arange(length)
    assert _retained(retention, length) == history[retention.visible(np.array(length - 1), history)].tolist()
    ranges = retention.retained(length)
    assert all(ranges), "no range is empty"
    assert all(before.stop < after.start for before, after in pairwise(ranges)), "nor two adjacent"
    assert len(_retained(retention, length)) <= retention.capacity


@every_policy
@untimed
@given(lane=lanes(), length=st.integers(1, 400))
def test_what_is_forgotten_stays_forgotten(
    policy_name: str, lane: tuple[LaneGeometry, SessionOptions], length: int
) -> None:
    retention = _retention(policy_name, lane)
    assert set(_retained(retention, length)) <= {*_retained(retention, length - 1), length - 1}
    assert length - 1 in _retained(retention, length), "a token sees itself"


@every_policy
@untimed
@given(lane=lanes(), start=LENGTHS, data=st.data())
def test_a_row_overwrites_nothing_that_it_sees(
    policy_name: str, lane: tuple[LaneGeometry, SessionOptions], start: int, data: st.DataObject
) -> None:
    geometry, _ = lane
    retention = _retention(policy_name, lane)
    num_tokens = data.draw(st.integers(1, geometry.chunk))
    row = Row(0, start, (0,) * num_tokens, retention)
    seen_before = [j for j in row.keys[row.visible.any(axis=0)] if j < start]
    slots = [*retention.slots(np.array(seen_before, dtype=np.int64)).tolist(), *row.slots.tolist()]
    assert len(set(slots)) == len(slots)
    assert all(0 <= slot < geometry.num_slots for slot in slots)


@every_policy
@untimed
@given(lane=lanes(), start=LENGTHS, data=st.data())
def test_a_row_s_keys_are_all_that_its_queries_see(
    policy_name: str, lane: tuple[LaneGeometry, SessionOptions], start: int, data: st.DataObject
) -> None:
    geometry, _ = lane
    retention = _retention(policy_name, lane)
    row = Row(0, start, (0,) * data.draw(st.integers(1, geometry.chunk)), retention)
    assert len(set(row.keys.tolist())) == len(row.keys)
    for query, visible in zip(row.positions, row.visible, strict=True):
        assert row.keys[visible].tolist() == _retained(retention, int(query) + 1)


@every_policy
@untimed
@given(lane=lanes(), queries=st.lists(st.integers(0, 10**12), min_size=1))
def test_sinks_stay_at_a_distance_that_the_model_knows(
    policy_name: str, lane: tuple[LaneGeometry, SessionOptions], queries: list[int]
) -> None:
    retention = _retention(policy_name, lane)
    positions = retention.sink_positions(np.array(queries))
    assert bool((positions <= np.array(queries)).all())
    assert bool((positions < lane[0].capacity).all())
    assert bool((positions >= np.minimum(queries, max(retention.sink - 1, 0))).all()), "behind every sink that is there"
