"""Snapshots that a worker cannot read now, as where it lacks a key: the session waits for one that can."""

from typing import Any

import pytest

from kakeya_shared.errors.tree import SnapshotStoreUnavailable
from tests.unit.router.fake_worker import SnapshotFiles
from tests.unit.router.lanes.test_parking import expected, generated, is_parked, lean_on_the_store
from tests.unit.router.lanes.test_queue import QUEUE
from tests.unit.router.lapses import be_lost
from tests.unit.router.stack import Stack, eventually


@pytest.mark.parametrize("queue", [{}, QUEUE | {"queue_seconds": 0.3}], ids=["at once", "queued"])
@pytest.mark.parametrize("num_others", [1, 2])
async def test_a_store_that_cannot_be_read_now_is_no_reason_to_lose_a_session(
    stack: Stack, queue: dict[str, Any], num_others: int
) -> None:
    """Its client is told that, and not that lanes are wanting, of which there are enough."""
    client, files = await stack.router(**queue), SnapshotFiles()
    worker = await stack.worker(client, files=files)
    session_id = await client.session()
    length = await lean_on_the_store(stack, client, session_id)
    others = [await stack.worker(client, f"other-{number}", files=files) for number in range(num_others)]
    for other in others:
        other.failures["OpenSession"] = [SnapshotStoreUnavailable("it does not answer")] * 1000
    await be_lost(worker)
    await eventually(lambda: is_parked(client, session_id))
    with pytest.raises(SnapshotStoreUnavailable, match="cannot read the session's snapshots"):
        await client.generate(session_id, 1)
    assert all(other.calls["OpenSession"] for other in others)
    assert await is_parked(client, session_id)
    for other in others:
        other.failures.clear()
    assert generated(await client.generate(session_id, 2)) == expected(length, length + 2)
