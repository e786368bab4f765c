"""Snapshots that a worker cannot read now, as where it lacks a key: the session waits for one that can."""

import pytest

from kakeya_shared.errors.tree import NoWorker, SnapshotStoreUnavailable
from tests.unit.router.fake_worker import SnapshotFiles
from tests.unit.router.lanes.test_parking import expected, generated, is_parked, lean_on_the_store
from tests.unit.router.lapses import be_lost
from tests.unit.router.stack import Client, Stack, eventually


async def test_a_store_that_cannot_be_read_now_is_no_reason_to_lose_a_session(stack: Stack, client: Client) -> None:
    files = SnapshotFiles()
    worker = await stack.worker(client, files=files)
    session_id = await client.session()
    length = await lean_on_the_store(stack, client, session_id)
    other = await stack.worker(client, "worker-b", files=files)
    other.failures["OpenSession"] = [SnapshotStoreUnavailable("it does not answer")] * 1000
    await be_lost(worker)
    await eventually(lambda: is_parked(client, session_id))
    with pytest.raises(NoWorker):
        await client.generate(session_id, 1)
    assert other.calls["OpenSession"]
    assert await is_parked(client, session_id)
    other.failures.clear()
    assert generated(await client.generate(session_id, 2)) == expected(length, length + 2)
