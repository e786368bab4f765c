"""Snapshots that a worker cannot read now, as where it lacks a key: the session waits for one that can."""

from typing import Any

import pytest

from kakeya_shared.errors.tree import NoWorker, SnapshotStoreUnavailable
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import SnapshotFiles
from tests.unit.router.lanes.test_parking import expected, generated, is_parked, lean_on_the_store
from tests.unit.router.lapses import be_lost
from tests.unit.router.stack import Client, Stack, eventually


@pytest.mark.parametrize("fork", [False, True], ids=["itself", "a fork of it"])
async def test_a_store_that_cannot_be_read_now_is_no_reason_to_lose_it(
    stack: Stack, client: Client, fork: bool
) -> None:
    files = SnapshotFiles()
    worker = await stack.worker(client, files=files)
    session_id = await client.session()
    length = await lean_on_the_store(stack, client, session_id)
    other = await stack.worker(client, "worker-b", files=files)
    other.failures["OpenSession"] = [SnapshotStoreUnavailable("it does not answer")] * 1000
    await be_lost(worker)
    await eventually(lambda: is_parked(client, session_id))
    at_the_end: dict[str, Any] = {"fork_from": api.ForkPoint(session_id=session_id, boundary=length)}
    with pytest.raises(NoWorker):
        await (client.session(**at_the_end) if fork else client.generate(session_id, 1))
    assert other.calls["OpenSession"]
    assert await is_parked(client, session_id)
    other.failures.clear()
    goes_on = await client.session(**at_the_end) if fork else session_id
    assert generated(await client.generate(goes_on, 2)) == expected(length, length + 2)
