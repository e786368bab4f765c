"""The integers of a draft model's lane: whatever it is told and drafts, each row sees its history and no stale slot."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.speculation.draft_lane import DraftLane

CHUNK = 5
GEOMETRY = LaneGeometry(sink=2, window=9, chunk=CHUNK)


class Slab:
    """What the rows of one lane have written, and what they must find."""

    def __init__(self) -> None:
        self._slots: dict[int, tuple[int, int]] = {}  # (history index, token), by slot

    def forward(self, row: Row, history: list[int]) -> None:
        """`history` is what the lane takes it to be, up to the row's last token."""
        assert 1 <= len(row.token_ids) <= CHUNK
        assert list(row.token_ids) == history[row.start : row.end] == history[row.start :]
        self._slots.update(
            zip(row.slots.tolist(), zip(row.positions.tolist(), row.token_ids, strict=True), strict=True)
        )
        for sees in row.visible:
            for index in row.keys[sees].tolist():
                found = self._slots[int(row.retention.slots(row.keys[row.keys == index])[0])]
                assert found == (index, history[index])


TOKENS = st.integers(0, 3)  # few, so that drafts are right by chance
TOLD = st.tuples(st.just("told"), st.lists(TOKENS, max_size=30))
DRAFTED = st.tuples(st.just("drafted"), st.lists(TOKENS, min_size=1, max_size=CHUNK), st.integers(0, CHUNK))
RESTARTED = st.tuples(st.just("restarted"), st.lists(TOKENS, max_size=12))


@settings(deadline=None, max_examples=300)
@given(actions=st.lists(st.one_of(TOLD, DRAFTED, RESTARTED), max_size=20))
def test_rows_see_the_history(actions: list[Any]) -> None:
    lane, slab = DraftLane(0, GEOMETRY), Slab()
    told: list[int] = []
    for kind, tokens, *more in actions:
        if kind == "restarted":
            lane.restart(tokens)
            told = list(tokens)
        elif kind == "told":
            lane.extend(tokens)
            told += tokens
        else:
            known = _as_the_lane_knows(lane, told)
            while lane.is_far_behind:
                row = lane.catch_up(CHUNK)
                slab.forward(row, known[: row.end])
            drafts = tokens[: CHUNK - 1]
            slab.forward(lane.begin(tokens[0]), [*known, tokens[0]])
            for number, draft in enumerate(drafts[:-1]):
                slab.forward(lane.go_on(draft), [*known, tokens[0], *drafts[: number + 1]])
            right = [tokens[0], *drafts][: more[0] + 1]  # what came of it
            lane.extend(right)
            told += right
        assert lane.num_behind <= GEOMETRY.capacity


def _as_the_lane_knows(lane: DraftLane, told: list[int]) -> list[int]:
    """All, or what a lane keeps of it, where it was so far behind that it began with that."""
    length = lane.length + lane.num_behind
    return told if length == len(told) else [*told[: GEOMETRY.sink], *told[len(told) - length + GEOMETRY.sink :]]


def test_drafts_that_come_are_not_computed_again() -> None:
    lane = DraftLane(0, GEOMETRY)
    lane.extend([1, 2])
    lane.begin(3)
    lane.go_on(4)
    lane.go_on(5)
    lane.extend([3, 4])
    assert (lane.length, lane.num_behind) == (4, 0)
    lane.extend([5, 6])
    assert (lane.length, lane.num_behind) == (5, 1)
    assert lane.begin(7).token_ids == (6, 7)


def test_drafts_that_do_not_come_leave_nothing() -> None:
    lane = DraftLane(0, GEOMETRY)
    lane.extend([1, 2])
    lane.begin(3)
    lane.go_on(4)
    lane.extend([3])
    lane.extend([5])
    row = lane.begin(6)
    assert (row.start, row.token_ids) == (3, (5, 6))
    lane.go_on(7)
    lane.extend([8])
    lane.extend([6, 7])
    assert (lane.length, lane.num_behind) == (4, 3), "what was drafted at another place is not there"


@pytest.mark.parametrize("part", [1, 7, 100, 1000])
def test_a_long_append_takes_no_more_than_what_a_lane_keeps(part: int) -> None:
    lane, tokens = DraftLane(0, GEOMETRY), list(range(3000))
    for start in range(0, len(tokens), part):
        lane.extend(tokens[start : start + part])
        assert lane.num_behind <= GEOMETRY.capacity
    found: list[int] = []
    while lane.is_far_behind:
        found += lane.catch_up(CHUNK).token_ids
    found += lane.begin(9).token_ids
    assert found[:2] == tokens[:2]
    assert found[2:] == [*tokens[2 - len(found) + 1 :], 9]
