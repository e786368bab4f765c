"""A worker that stands still with its connections open is given up while its lease runs, and taken back afterwards."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from kakeya_router.tunnels.doors import Doors
from kakeya_router.workers.probing import Answers
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_shared.errors.tree import NoWorker
from tests.unit.router.operations.test_journal import RECORD
from tests.unit.router.operations.test_recovery import called
from tests.unit.router.stack import Client, Stack, eventually
from tests.unit.router.workers.test_stopped_workers import FAR_SECONDS, Standing, _no_limits  # noqa: F401  # a fixture

SOON = {"worker_silence_seconds": 0.3}


class Silent(Standing):
    """Stands altogether: probes have no answer either."""

    async def GetSlab(self, request: Any, context: Any) -> Any:
        self.calls["probed"] += 1
        await self.going.wait()
        return await super().GetSlab(request, context)


@pytest.fixture
async def quick(stack: Stack) -> Client:
    return await stack.router(**SOON)


@pytest.fixture
async def silent(stack: Stack, quick: Client) -> AsyncIterator[Silent]:
    async with Silent("worker-a") as worker:
        worker.leases = stack.redis
        await quick.join(worker)
        worker.keep_beating(quick.registry)
        yield worker
        worker.going.set()


async def test_an_answer_goes_on_elsewhere_while_the_lease_of_its_worker_runs(
    stack: Stack, quick: Client, silent: Silent
) -> None:
    session_id = await quick.session()
    await quick.append(session_id, range(20))
    other = await stack.worker(quick, "worker-b")
    silent.flowing.clear()
    silent.going.clear()
    assert (await quick.generate(session_id, 3))[-1].done.history_length == 23
    assert session_id in other.lanes
    assert {*await quick.workers()} == {"worker-a", "worker-b"}


async def test_it_gets_sessions_again_once_it_answers(stack: Stack, quick: Client, silent: Silent) -> None:
    silent.going.clear()
    with pytest.raises(NoWorker, match="answers"):
        await quick.session()
    asked = silent.calls["asked"]
    with pytest.raises(NoWorker, match="answers"):
        await quick.session()
    assert silent.calls["asked"] == asked, "it was asked although it is silent"
    silent.going.set()

    async def is_taken() -> bool:
        try:
            return await quick.session() in silent.lanes
        except NoWorker:
            return False

    await eventually(is_taken)


async def test_who_only_holds_idle_sessions_is_not_probed(quick: Client, silent: Silent) -> None:
    await quick.session()
    probed = silent.calls["probed"]
    await asyncio.sleep(3 * SOON["worker_silence_seconds"])
    assert silent.calls["probed"] == probed


async def test_a_busy_worker_that_answers_is_waited_for(quick: Client, silent: Silent) -> None:
    session_id = await quick.session()
    silent.flowing.clear()
    appending = asyncio.create_task(quick.append(session_id, range(20)))
    await eventually(lambda: called(silent, "probed", 8))  # in more passes than a silent one is waited for
    silent.flowing.set()
    assert (await appending).history_length == 20
    assert session_id in silent.lanes


async def test_whatever_a_worker_says_is_an_answer_and_no_connection_is_none() -> None:
    said: list[grpc.StatusCode] = []

    async def ask() -> None:
        raise grpc.aio.AioRpcError(said[-1], grpc.aio.Metadata(), grpc.aio.Metadata())

    async def silent_after_passes(status: grpc.StatusCode) -> bool:
        said.append(status)
        answers = Answers(ask)
        for _ in range(6):
            answers.miss(3)
            await asyncio.sleep(0.001)
        await answers.aclose()
        return answers.is_silent

    assert await silent_after_passes(grpc.StatusCode.UNAVAILABLE)
    assert await silent_after_passes(grpc.StatusCode.DEADLINE_EXCEEDED)
    assert not await silent_after_passes(grpc.StatusCode.UNIMPLEMENTED)
    assert not await silent_after_passes(grpc.StatusCode.FAILED_PRECONDITION)


async def never(*_: object) -> Any:
    await asyncio.sleep(FAR_SECONDS)


async def test_a_worker_behind_a_tunnel_is_waited_for() -> None:
    clients = WorkerClients(doors=Doors(never))
    asking = asyncio.create_task(clients.at(f"tunnel:{'0' * 32}").close_session(RECORD, FAR_SECONDS))
    await asyncio.sleep(0)
    assert [clients.probe(1.0) for _ in range(10)] == [frozenset()] * 10
    assert not asking.done()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await clients.aclose()


async def test_silence_is_counted_anew_for_who_is_waited_for_again() -> None:
    answers = Answers(never)
    for _ in range(3):
        answers.miss(3)
    assert not answers.is_silent
    answers.forget()
    for _ in range(3):
        answers.miss(3)
    assert not answers.is_silent
    answers.miss(3)
    assert answers.is_silent
    await answers.aclose()
