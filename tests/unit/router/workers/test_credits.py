"""Credits: the worker is told what clients have taken, and pauses when they take nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
import pytest
import structlog

from kakeya_router.contract.generates import Done
from kakeya_router.workers.answers import Acknowledgements
from kakeya_router.workers.worker_client import WorkerClient
from kakeya_shared.errors.tree import StaleEpoch, StoreUnavailable
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.v1.runtime_pb2_grpc import RuntimeServiceStub
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from tests.unit.router.fake_worker import CREDITS, FakeWorker, Lane, generate
from tests.unit.router.stack import Client, eventually

NUM_JOURNALED = 7


class OldWorker(FakeWorker):
    """Of before there were acknowledgements."""

    async def Acknowledge(self, request: pb.AcknowledgeRequest, context: Any) -> pb.AcknowledgeResponse:
        self.acknowledging.append(request)
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        raise AssertionError("not reached: abort raises")

    async def _credit(self, request: pb.GenerateRequest, lane: Lane, num_generated: int) -> None:
        return


@asynccontextmanager
async def worker_and_client(worker: FakeWorker) -> AsyncIterator[tuple[FakeWorker, WorkerClient]]:
    """With one open lane, of session "s"."""
    async with worker:
        worker.lanes["s"] = Lane(1, 4, 16, refuses=False)
        client = WorkerClient(worker.address)
        try:
            yield worker, client
        finally:
            await client.aclose()


class Ear:
    """Hears acknowledgements, one at a time, each when the test lets it."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.called: asyncio.Queue[int] = asyncio.Queue()
        self.answers: asyncio.Queue[grpc.StatusCode | None] = asyncio.Queue()

    async def __call__(self, num_tokens: int) -> None:
        self.called.put_nowait(num_tokens)
        status = await self.answers.get()
        if status is not None:
            raise grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata())
        self.heard.append(num_tokens)

    async def next(self) -> int:
        return await asyncio.wait_for(self.called.get(), 60)


async def test_one_call_at_a_time_and_the_latest_number_wins() -> None:
    ear = Ear()
    async with Acknowledgements(ear).sending() as acknowledgements:
        for _ in range(16):
            acknowledgements.pass_on()
        assert await ear.next() == 16
        for _ in range(40):
            acknowledgements.pass_on()
        await asyncio.sleep(0)
        assert ear.called.empty()
        ear.answers.put_nowait(None)
        assert await ear.next() == 56
        ear.answers.put_nowait(None)
        acknowledgements.pass_on()  # alone: after a while
        assert await ear.next() == 57
        ear.answers.put_nowait(None)
    assert ear.heard[:2] == [16, 56]


async def test_few_tokens_wait_for_company_but_not_for_long() -> None:
    ear = Ear()
    async with Acknowledgements(ear).sending() as acknowledgements:
        for _ in range(15):
            acknowledgements.pass_on()
            await asyncio.sleep(0)
        assert ear.called.empty()
        assert await ear.next() == 15


async def test_what_was_taken_before_the_stream_counts() -> None:
    ear = Ear()
    async with Acknowledgements(ear, 40).sending() as acknowledgements:
        await asyncio.sleep(0.1)
        assert ear.called.empty()
        acknowledgements.pass_on()
        for _ in range(5):
            await asyncio.sleep(0)
        assert ear.called.empty()
        for _ in range(15):
            acknowledgements.pass_on()
        assert await ear.next() == 56


async def test_what_was_not_heard_is_said_again() -> None:
    ear = Ear()
    async with Acknowledgements(ear).sending() as acknowledgements:
        acknowledgements.pass_on()
        assert await ear.next() == 1
        ear.answers.put_nowait(grpc.StatusCode.UNAVAILABLE)
        assert await ear.next() == 1
        ear.answers.put_nowait(grpc.StatusCode.DEADLINE_EXCEEDED)
        assert await ear.next() == 1


async def test_what_nobody_foresaw_is_logged_and_leaves_the_stream_alone() -> None:
    asked = asyncio.Event()

    async def deaf(num_tokens: int) -> None:
        asked.set()
        raise ValueError("not foreseen")

    with structlog.testing.capture_logs() as lines:
        async with Acknowledgements(deaf).sending() as acknowledgements:
            acknowledgements.pass_on()
            await asyncio.wait_for(asked.wait(), 60)
    assert [(line["log_level"], str(line["exc_info"])) for line in lines] == [("error", "not foreseen")]


async def test_a_worker_pauses_when_its_tokens_are_not_taken() -> None:
    async with worker_and_client(FakeWorker()) as (worker, client):
        async with aclosing(generate(client, "s", 1000, journaled_length=NUM_JOURNALED)) as responses:
            for _ in range(10):
                await anext(responses)

            async def full() -> bool:
                return len(worker.lanes["s"].token_ids) == 9 + CREDITS

            await eventually(full)  # the tenth is not passed on before somebody asks for the next
            await asyncio.sleep(0.1)
            assert await full()
            for _ in range(200):
                await anext(responses)
        numbers = [request.num_tokens for request in worker.acknowledging]
        assert numbers == sorted(set(numbers))
        said = {(request.session_id, request.epoch, request.journaled_length) for request in worker.acknowledging}
        assert said == {("s", 1, NUM_JOURNALED)}
        assert len(numbers) < 40  # in batches


async def test_tokens_of_the_stream_before_are_acknowledged_with_those_of_this_one() -> None:
    async with worker_and_client(FakeWorker()) as (worker, client):
        responses = [response async for response in generate(client, "s", 1000, produced=[1] * 40)]
        assert len(responses) == 960 + 1
        assert 40 < worker.acknowledging[0].num_tokens <= 40 + CREDITS
        assert 1000 - CREDITS <= worker.acknowledging[-1].num_tokens <= 1000


@pytest.mark.parametrize("failure", [StoreUnavailable("not now"), ValueError("broken")])
async def test_an_acknowledgement_that_fails_is_no_error_of_the_stream(failure: Exception) -> None:
    async with worker_and_client(FakeWorker()) as (worker, client):
        worker.failures["Acknowledge"] = [failure, failure]
        responses = [response async for response in generate(client, "s", 1000, journaled_length=NUM_JOURNALED)]
        done = responses[-1]
        assert isinstance(done, Done)
        assert done.generated_token_count == 1000
        assert worker.acknowledging[0].num_tokens <= worker.acknowledging[1].num_tokens


async def test_a_worker_without_acknowledgements_is_not_asked_again() -> None:
    async with worker_and_client(OldWorker()) as (worker, client):
        responses = [response async for response in generate(client, "s", 1000, journaled_length=NUM_JOURNALED)]
        done = responses[-1]
        assert isinstance(done, Done)
        assert done.generated_token_count == 1000
        assert len(worker.acknowledging) == 1


async def test_a_lane_that_is_gone_hears_no_more() -> None:
    async with worker_and_client(FakeWorker()) as (worker, client):
        worker.failures["Acknowledge"] = [StaleEpoch("another has it")]
        async with aclosing(generate(client, "s", 1000, journaled_length=NUM_JOURNALED)) as responses:
            for _ in range(CREDITS):
                await anext(responses)
            worker.flowing.clear()

            async def told() -> bool:
                return len(worker.acknowledging) == 1

            await eventually(told)
            await asyncio.sleep(0.15)
            assert await told()


async def test_a_client_that_does_not_read_pauses_the_worker(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    small_window = [("grpc.http2.lookahead_bytes", 256), ("grpc.http2.bdp_probe", 0)]  # as the SDK has it
    async with grpc.aio.insecure_channel(client.address, options=small_window) as channel:
        stub: Any = RuntimeServiceStub(channel)
        stream = stub.Generate(api.GenerateRequest(session_id=session_id, max_tokens=10**4))
        for _ in range(10):
            await stream.read()
        lane = worker.lanes[session_id]

        async def is_ahead() -> bool:
            return len(lane.token_ids) - 1 - 10 > CREDITS

        await eventually(is_ahead)
        length = -1
        while length != len(lane.token_ids):
            length = len(lane.token_ids)
            await asyncio.sleep(0.3)
        num_ahead = length - 1 - 10
        # 64 on each of two hops, one that the router is writing, one that the client's gRPC has read ahead.
        assert CREDITS < num_ahead <= 2 * CREDITS + 8
        stream.cancel()

    async def free() -> bool:
        return not lane.busy

    await eventually(free)
