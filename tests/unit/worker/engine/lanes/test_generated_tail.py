"""Generated tokens that nobody has on record yet."""

import pytest

from kakeya_worker.engine.lanes.lane_table import GeneratedTail


@pytest.mark.parametrize(("journaled", "known"), [(10, (0, 1, 2, 3, 4)), (12, (2, 3, 4)), (14, (4,)), (15, ())])
def test_what_is_not_on_record_is_kept(journaled: int, known: tuple[int, ...]) -> None:
    tail = GeneratedTail()
    tail.forget(10)
    for token_id in range(5):
        tail.add(token_id, journaled)
    assert tail.since(journaled, 15) == known
    assert tail.since(journaled - 1, 15) == (), "what is on record is kept no longer"
