"""A worker that stands still with its connections open: what is asked of it ends with its lease."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from kakeya_router.lanes import closing, restoring
from kakeya_router.sessions import opening
from kakeya_router.workers.worker_client import WorkerClient
from kakeya_router.workers.worker_errors import WorkerUnreachable
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.lapses import expire
from tests.unit.router.operations.test_journal import RECORD
from tests.unit.router.operations.test_recovery import called, of_state
from tests.unit.router.stack import Client, Stack, eventually

FAR_SECONDS = 3600.0


@pytest.fixture(autouse=True)
def _no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked waits for as long as the worker takes, so that only its lease can end that."""
    for module in (closing, opening):
        monkeypatch.setattr(module, "LANE_SECONDS", FAR_SECONDS)
    monkeypatch.setattr(restoring, "RESTORE_SECONDS", FAR_SECONDS)


class Standing(FakeWorker):
    """Takes calls and answers none once it is told to."""

    def __init__(self, *arguments: Any, **fields: Any) -> None:
        super().__init__(*arguments, **fields)
        self.going = asyncio.Event()
        self.going.set()

    def stand(self) -> None:
        self.going.clear()
        self.stop_beating()

    async def lapse_once_asked(self, times: int = 1) -> None:
        """Has its lease lapse while it is asked."""
        await eventually(lambda: called(self, "asked", times))
        await self.lapse()

    async def OpenSession(self, request: Any, context: Any) -> Any:
        self.calls["asked"] += 1
        self.calls["asked to open"] += 1
        await self.going.wait()
        return await super().OpenSession(request, context)

    async def CloseSession(self, request: Any, context: Any) -> Any:
        self.calls["asked"] += 1
        await self.going.wait()
        return await super().CloseSession(request, context)


@pytest.fixture
async def standing(stack: Stack, client: Client) -> Any:
    async with Standing("worker-a") as worker:
        worker.leases = stack.redis
        await client.join(worker)
        worker.keep_beating(client.registry)
        yield worker
        worker.going.set()


@pytest.fixture
async def other(stack: Stack, client: Client, standing: Standing) -> FakeWorker:
    """With less room, so that it is not the first to be asked."""
    return await stack.worker(client, "worker-b", num_lanes=1)


async def test_a_session_is_opened_elsewhere(client: Client, standing: Standing, other: FakeWorker) -> None:
    standing.stand()
    opening = asyncio.create_task(client.session())
    await standing.lapse_once_asked()
    session_id = await opening
    # That it is asked to close it again, too, may be given up before it hears of it: it is gone by then.
    assert (standing.calls["asked to open"], list(other.lanes)) == (1, [session_id])


async def test_a_session_is_resumed_elsewhere(client: Client, standing: Standing, other: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, range(20))
    await client.park(session_id)
    assert standing.calls["asked"] == 2  # it was opened, and closed when it was parked
    standing.stand()
    generating = asyncio.create_task(client.generate(session_id, 3))
    await standing.lapse_once_asked(3)
    assert (await generating)[-1].done.history_length == 23
    assert (standing.calls["asked"], list(other.lanes)) == (3, [session_id])


async def test_a_session_that_expires_there_holds_nothing_up(stack: Stack, client: Client, standing: Standing) -> None:
    """Its lane is asked for, and others learn nevertheless that the worker is gone."""
    expiring, kept = await client.session(), await client.session()
    await client.append(kept, range(5))
    standing.going.clear()
    await expire(stack, expiring)
    await standing.lapse_once_asked(3)
    await eventually(lambda: of_state(client, kept, api.SESSION_STATE_PARKED))
    await eventually(lambda: is_gone(client, expiring))


async def test_a_call_whose_task_is_cancelled_is_cancelled(standing: Standing) -> None:
    client = WorkerClient(standing.address)
    standing.stand()
    asking = asyncio.create_task(client.close_session(RECORD, FAR_SECONDS))
    await eventually(lambda: called(standing, "asked", 1))
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await client.aclose()


async def test_a_client_that_was_closed_meanwhile_finds_its_worker_unreachable(tmp_path: Path) -> None:
    """Idle between two tries, and so closed once the worker is gone."""
    client = WorkerClient("tunnel:1", door=tmp_path / "nobody")
    asking = asyncio.create_task(client.close_session(RECORD, FAR_SECONDS))
    asking_again = asyncio.create_task(client.restore_session(RECORD, (), FAR_SECONDS))
    with pytest.raises(WorkerUnreachable):
        await asking
    while not client.idle:
        await asyncio.sleep(0.001)
    await client.aclose()
    with pytest.raises(WorkerUnreachable):
        await asking_again
    with pytest.raises(WorkerUnreachable, match="closed"):
        await client.close_session(RECORD, FAR_SECONDS)


async def is_gone(client: Client, session_id: str) -> bool:
    try:
        await client.runtime.GetSessionInfo(api.GetSessionInfoRequest(session_id=session_id))
    except grpc.aio.AioRpcError as error:
        return error.code() is grpc.StatusCode.NOT_FOUND
    return False
