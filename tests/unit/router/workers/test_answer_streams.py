"""The answers of a worker by one stream: each has all tokens of its own, and none of another's."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
import pytest

from kakeya_router.contract.generates import Done, Token
from kakeya_router.workers import answer_streams
from kakeya_router.workers.answers import BATCH_SECONDS
from kakeya_router.workers.worker_client import RunningCall, WorkerClient
from kakeya_router.workers.worker_errors import LaneGone, WorkerFault, WorkerUnreachable
from kakeya_shared.contract.features import ANSWER_STREAM
from kakeya_shared.errors.tree import (
    DeadlineExceeded,
    Draining,
    KakeyaError,
    SessionClosed,
    SessionNotFound,
    StaleEpoch,
)
from kakeya_shared.settings.service import RpcServerSettings
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from tests.unit.router.fake_worker import CREDITS, EVERY_FEATURE, AnswerStream, FakeWorker, Lane, generate, leased
from tests.unit.router.stack import Client, Stack, eventually

NAMES = ("a", "b", "c")
FIRST = 100
"""The first token of a fake worker's lane that is empty."""


@asynccontextmanager
async def worker_and_client(worker: FakeWorker) -> AsyncIterator[tuple[FakeWorker, WorkerClient]]:
    """With open lanes of some sessions."""
    async with worker:
        worker.lanes |= {name: Lane(1, 4, 16, refuses=False) for name in NAMES}
        client = WorkerClient(worker.address)
        client.see(is_there=True, streams_answers=True)
        try:
            yield worker, client
        finally:
            await client.aclose()


async def all_of(client: WorkerClient, name: str, max_tokens: int, **given: Any) -> list[Token | Done]:
    return [event async for event in generate(client, name, max_tokens, **given)]


async def take(events: AsyncGenerator[Token | Done, None], taken: list[Token | Done]) -> None:
    """All that come, until they fail."""
    async for event in events:
        taken += [event]


def token_ids(events: Sequence[Token | Done]) -> list[int]:
    return [event.token_id for event in events if isinstance(event, Token)]


async def until(condition: Any) -> None:
    async def is_met() -> bool:
        return bool(condition())

    await eventually(is_met)


class HeldCall:
    """Writes nothing until it may, as on a connection that has to be opened first."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.cancel = call.cancel
        self.is_told, self.may_write = asyncio.Event(), asyncio.Event()

    def __aiter__(self) -> Any:
        return aiter(self._call)

    async def write(self, request: pb.StreamAnswersRequest) -> None:
        self.is_told.set()
        await self.may_write.wait()
        await self._call.write(request)


def held(client: WorkerClient) -> HeldCall:
    """The call of its next stream."""
    call = HeldCall(client._stub.StreamAnswers())
    client._streams._open = lambda: call
    return call


@pytest.mark.parametrize("is_being_written", [False, True])
async def test_a_stop_does_not_come_before_the_beginning_of_what_it_stops(
    monkeypatch: pytest.MonkeyPatch, *, is_being_written: bool
) -> None:
    monkeypatch.setattr(answer_streams, "_WRITTEN_SECONDS", 60.0)
    async with worker_and_client(FakeWorker()) as (worker, client):
        call = held(client)
        answering = asyncio.create_task(all_of(client, "a", 1_000_000))
        await asyncio.sleep(0)  # it is queued
        if is_being_written:
            await call.is_told.wait()
        answering.cancel()
        await asyncio.wait([answering])
        stopping = asyncio.create_task(client.stop(leased("a"), 0, None))
        await asyncio.wait([stopping], timeout=0.2)
        assert not stopping.done() or not is_being_written
        call.may_write.set()
        stopped = await stopping
        await all_of(client, "b", 1)  # what was written before has arrived
        assert len(worker.generating) == is_being_written + 1
        assert stopped.lane.history_length == worker.lanes["a"].state().history_length


async def test_a_stop_does_not_wait_for_ever_for_what_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_streams, "_WRITTEN_SECONDS", 0.05)
    async with worker_and_client(FakeWorker()) as (_, client):
        call = held(client)
        answering = asyncio.create_task(all_of(client, "a", 1))
        await call.is_told.wait()
        assert (await client.stop(leased("a"), 0, None)).lane.history_length == 0
        call.may_write.set()
        assert len(await answering) == 2


async def test_answers_share_a_stream_and_a_lone_one_comes_by_it_too() -> None:
    async with worker_and_client(FakeWorker()) as (worker, client):
        assert len(await all_of(client, "a", 3)) == 4
        worker.lanes["a"].token_ids.clear()
        found = await asyncio.gather(*(all_of(client, name, 200) for name in NAMES))
        for events in found:
            assert token_ids(events) == [FIRST + number for number in range(200)]
            assert isinstance(events[-1], Done)
            assert events[-1].generated_token_count == 200
        assert worker.streamed == [True] * 4
        assert worker.calls["StreamAnswers"] == 1
        assert all(lane.num_acknowledged > 200 - CREDITS for lane in worker.lanes.values())


async def test_one_that_is_not_read_pauses_and_holds_up_no_other() -> None:
    async with worker_and_client(FakeWorker()) as (worker, client), aclosing(generate(client, "a", 1000)) as unread:
        for _ in range(10):
            await anext(unread)
        assert len(token_ids(await all_of(client, "b", 500))) == 500
        await until(lambda: len(worker.lanes["a"].token_ids) == 9 + CREDITS)  # the tenth is not passed on yet
        assert len([event async for event in unread]) == 990 + 1


async def test_what_was_produced_before_counts() -> None:
    async with worker_and_client(FakeWorker()) as (worker, client):
        events = await all_of(client, "a", 1000, produced=[1] * 40)
        assert len(token_ids(events)) == 960
        assert worker.lanes["a"].num_acknowledged > 1000 - CREDITS


async def test_few_tokens_are_acknowledged_after_a_while() -> None:
    async with worker_and_client(FakeWorker()) as (worker, client), aclosing(generate(client, "a", 1000)) as few:
        for _ in range(4):
            await anext(few)
        await until(lambda: worker.lanes["a"].num_acknowledged == 3)
        await anext(few)
        await until(lambda: worker.lanes["a"].num_acknowledged == 4)


async def test_an_answer_that_has_ended_is_acknowledged_no_more() -> None:
    class Counting(FakeWorker):
        """Knows how many messages have come."""

        num_messages = 0

        async def StreamAnswers(
            self, requests: AsyncIterator[pb.StreamAnswersRequest], context: Any
        ) -> AsyncIterator[pb.StreamAnswersResponse]:
            async def counted() -> AsyncIterator[pb.StreamAnswersRequest]:
                async for request in requests:
                    self.num_messages += 1
                    yield request

            async with aclosing(super().StreamAnswers(counted(), context)) as responses:  # type: ignore[type-var]  # it is a generator
                async for response in responses:
                    yield response

    worker = Counting()
    async with worker_and_client(worker) as (_, client):
        await all_of(client, "a", 3)
        await asyncio.sleep(3 * BATCH_SECONDS)
        assert worker.num_messages == 1


async def test_answers_that_begin_at_once_are_messages_of_their_own() -> None:
    """Together they would be longer than a message may be."""
    settings = RpcServerSettings.model_construct(max_message_bytes=100_000)
    async with worker_and_client(FakeWorker(settings=settings)) as (_, client):
        found = [all_of(client, name, 30_002, produced=[300] * 30_000) for name in NAMES]
        assert [len(events) for events in await asyncio.gather(*found)] == [3] * 3


async def test_a_long_request_has_a_call_of_its_own_and_fails_alone() -> None:
    settings = RpcServerSettings.model_construct(max_message_bytes=100_000)
    async with (
        worker_and_client(FakeWorker(settings=settings)) as (worker, client),
        aclosing(generate(client, "a", 10**6)) as beside,
    ):
        await anext(beside)
        assert len(await all_of(client, "b", 40_002, produced=[300] * 40_000)) == 3
        with pytest.raises(WorkerFault, match="RESOURCE_EXHAUSTED"):
            await all_of(client, "c", 60_002, produced=[300] * 60_000)
        for _ in range(2 * CREDITS):
            await anext(beside)
        assert worker.streamed == [True, False]
        assert worker.calls["StreamAnswers"] == 1


class StreamEnder(FakeWorker):
    """Ends its streams when it is told to, and some of itself.

    Attributes:
        ends: set, they end.
        short_streams: so many of the next ones end after a few responses.
    """

    def __init__(self, *arguments: Any, **fields: Any) -> None:
        super().__init__(*arguments, **fields)
        self.ends = asyncio.Event()
        self.short_streams = 0

    async def StreamAnswers(
        self, requests: AsyncIterator[pb.StreamAnswersRequest], context: Any
    ) -> AsyncGenerator[pb.StreamAnswersResponse, None]:
        is_short = self.short_streams > 0
        self.short_streams -= is_short
        num_responses = 0
        async with aclosing(super().StreamAnswers(requests, context)) as responses:  # type: ignore[type-var]  # it is a generator
            async for response in responses:
                yield response
                num_responses += 1
                if self.ends.is_set() or (is_short and num_responses == 5):
                    return


async def test_answers_of_a_stream_that_ends_fail_once_their_tokens_are_taken() -> None:
    worker = StreamEnder()
    async with worker_and_client(worker) as (_, client):
        async with aclosing(generate(client, "a", 10**6)) as answer:
            first = await anext(answer)
            assert isinstance(first, Token)
            worker.ends.set()
            taken = [first.token_id]
            with pytest.raises(WorkerUnreachable, match="stream of answers has ended"):
                async for event in answer:
                    assert isinstance(event, Token)
                    taken.append(event.token_id)
        assert taken == [FIRST + number % 800 for number in range(len(taken))]
        worker.ends.clear()
        await until(lambda: not worker.lanes["a"].busy)
        worker.lanes["a"].token_ids.clear()
        assert len(token_ids(await all_of(client, "a", 20))) == 20  # by another one
        assert worker.calls["StreamAnswers"] == 2


async def test_clients_notice_nothing_of_a_stream_that_ends(client: Client, stack: Stack) -> None:
    worker = StreamEnder(features=EVERY_FEATURE)
    await stack._exits.enter_async_context(worker)
    await client.join(worker)
    worker.keep_beating(client.registry)
    sessions = [await client.session() for _ in NAMES]
    for session_id in sessions:
        await client.append(session_id, [1])
    await stack.routers[0]._parts.base.fleet.look()

    worker.short_streams = 5
    found = await asyncio.gather(*(client.generate(session_id, 3_000) for session_id in sessions))
    for responses in found:
        tokens = [response.token_id for response in responses if response.HasField("token_id")]
        assert tokens == [FIRST + number % 800 for number in range(1, 3_001)]
    assert worker.calls["StreamAnswers"] > 1
    assert worker.calls["Stop"] > 0


async def test_the_first_answer_of_a_worker_comes_by_a_stream(client: Client, stack: Stack) -> None:
    """No look at the workers is waited for, once one has seen it."""
    worker = await stack.worker(client)
    session_id = await client.session()
    await client.append(session_id, [1])
    await client.generate(session_id, 3)
    assert worker.streamed == [True]


async def test_details_come_along(client: Client, stack: Stack) -> None:
    worker = await stack.worker(client, features=EVERY_FEATURE)
    sessions = [await client.session() for _ in NAMES]
    for session_id in sessions:
        await client.append(session_id, [1])
    await stack.routers[0]._parts.base.fleet.look()
    found = await asyncio.gather(*(client.generate(session_id, 100, logprobs=2) for session_id in sessions))
    for responses in found:
        tokens = [response for response in responses if response.HasField("token_id")]
        assert len(tokens) == 100
        assert {response.detail.logprob for response in tokens} == {-0.5}
        assert all(len(response.detail.top_logprobs) == 2 for response in tokens)
    assert all(worker.streamed)


async def test_a_worker_that_does_not_name_it_is_asked_for_no_stream(client: Client, stack: Stack) -> None:
    worker = await stack.worker(client, features=[name for name in EVERY_FEATURE if name != ANSWER_STREAM])
    sessions = [await client.session() for _ in NAMES]
    for session_id in sessions:
        await client.append(session_id, [1])
    await stack.routers[0]._parts.base.fleet.look()
    await asyncio.gather(*(client.generate(session_id, 50) for session_id in sessions))
    assert worker.streamed == [False] * 3
    assert worker.calls["StreamAnswers"] == 0


class Unable(FakeWorker):
    """Of before there were streams; its place was that of a newer one."""

    async def StreamAnswers(self, requests: AsyncIterator[pb.StreamAnswersRequest], context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        yield pb.StreamAnswersResponse()


async def test_a_worker_that_has_none_is_another_than_the_one_that_was_meant() -> None:
    async with worker_and_client(Unable()) as (_, client):
        for _ in range(2):
            with pytest.raises(WorkerUnreachable, match="stream of answers has ended"):
                await all_of(client, "a", 5)


class Refusing(FakeWorker):
    """It says no once it has heard something: a status that comes while something is written may be lost."""

    async def StreamAnswers(self, requests: AsyncIterator[pb.StreamAnswersRequest], context: Any) -> Any:
        await anext(aiter(requests))
        raise Draining("it is not ready yet")
        yield pb.StreamAnswersResponse()


async def test_a_stream_that_the_worker_refuses_tells_why() -> None:
    async with worker_and_client(Refusing()) as (_, client):
        for _ in range(2):
            with pytest.raises(Draining, match="not ready"):
                await all_of(client, "a", 5)


async def test_a_worker_that_is_gone_is_not_reached() -> None:
    async with worker_and_client(worker := FakeWorker()) as (_, client):
        async with aclosing(generate(client, "a", 10**6)) as answer:
            await anext(answer)
            await worker.vanish()
            with pytest.raises(WorkerUnreachable):
                await take(answer, [])
        with pytest.raises(WorkerUnreachable, match="stream of answers has ended"):
            await all_of(client, "b", 5)


class Losing(FakeWorker):
    """Its streams lose the last token of each answer of session "a"."""

    async def _generate(
        self, request: pb.GenerateRequest, way: tuple[AnswerStream, int] | None = None
    ) -> AsyncGenerator[pb.GenerateResponse, None]:
        assert way is not None
        put = way[0].put

        def lose(answer: int, token_id: int, detail: pb.TokenDetail | None) -> None:
            if answer != way[1] or token_id != FIRST + 4:
                put(answer, token_id, detail)

        if request.session_id == "a":
            way[0].put = lose  # type: ignore[method-assign]  # one token is lost on its way
        async for response in super()._generate(request, way):
            yield response


async def test_tokens_that_have_not_come_are_missed_at_the_end() -> None:
    async with worker_and_client(Losing()) as (_, client):
        taken: list[Token | Done] = []
        with pytest.raises(WorkerUnreachable, match="all of its tokens"):
            await take(generate(client, "a", 5), taken)
        assert token_ids(taken) == [FIRST + number for number in range(4)]
        assert len(await all_of(client, "b", 5)) == 6


async def test_an_answer_whose_end_says_nothing_is_a_fault() -> None:
    worker = FakeWorker()
    worker.forgets_done = True
    async with worker_and_client(worker) as (_, client):
        taken: list[Token | Done] = []
        with pytest.raises(WorkerFault, match="not known here"):
            await take(generate(client, "a", 5), taken)
        assert len(taken) == 5


@pytest.mark.parametrize("told", [SessionNotFound("no lane"), StaleEpoch("another epoch")])
async def test_an_answer_from_a_lane_that_is_gone_is_told_as_one_of_a_call(told: KakeyaError) -> None:
    worker = FakeWorker()
    worker.failures["Generate"] = [told]
    async with worker_and_client(worker) as (_, client):
        with pytest.raises(LaneGone, match=told.message):
            await all_of(client, "a", 5)


async def test_a_deadline_ends_an_answer_here_and_there() -> None:
    worker = FakeWorker()
    worker.pause_in = 3
    async with worker_and_client(worker) as (_, client):
        taken: list[Token | Done] = []
        with pytest.raises(DeadlineExceeded):
            await take(generate(client, "a", 10**6, timeout=0.3), taken)
        assert len(taken) == 3
        worker.flowing.set()
        await until(lambda: not worker.lanes["a"].busy)
        assert len(await all_of(client, "b", 5, timeout=60.0)) == 6


async def test_an_answer_that_is_left_is_cancelled_at_the_worker_also_before_it_began() -> None:
    worker = FakeWorker()
    worker.late = [asyncio.Event()]
    worker.flowing.clear()
    async with worker_and_client(worker) as (_, client):
        waiting = asyncio.create_task(all_of(client, "a", 5))
        await until(lambda: worker.generating)
        waiting.cancel()
        at_once = asyncio.create_task(all_of(client, "b", 5))
        await asyncio.sleep(0)
        at_once.cancel()
        await asyncio.wait([waiting, at_once])
        (stream,) = worker.streams
        await until(lambda: len(stream.tasks) == 2 and all(task.cancelled() for task in stream.tasks.values()))
        worker.flowing.set()
        async with aclosing(generate(client, "c", 10**6)) as answer:
            await anext(answer)
        await until(lambda: not worker.lanes["c"].busy)
        assert not worker.lanes["a"].token_ids


async def test_an_error_comes_after_what_came_before() -> None:
    async with worker_and_client(FakeWorker()) as (worker, client):
        async with aclosing(generate(client, "a", 10**6)) as answer:
            await anext(answer)
            await until(lambda: len(worker.lanes["a"].token_ids) >= CREDITS)
            await asyncio.sleep(0.1)  # they are here
            worker.lanes["a"].end = SessionClosed("closed")
            taken: list[Token | Done] = []
            with pytest.raises(SessionClosed):
                await take(answer, taken)
        assert len(taken) >= CREDITS - 1


async def test_nothing_comes_after_an_answer_was_cancelled() -> None:
    """Its session may be another router's by then."""
    async with worker_and_client(FakeWorker()) as (worker, client):
        running = RunningCall()
        async with aclosing(generate(client, "a", 10**6, running=running)) as answer:
            await anext(answer)
            await until(lambda: len(worker.lanes["a"].token_ids) >= CREDITS)
            await asyncio.sleep(0.1)  # they are here
            running.cancel()
            await asyncio.sleep(0.1)
            with pytest.raises(asyncio.CancelledError):
                await anext(answer)


async def test_a_stream_goes_when_nothing_runs_and_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_streams, "_LINGER_SECONDS", 0.01)
    async with worker_and_client(FakeWorker()) as (worker, client):
        for number in (1, 2):
            async with aclosing(generate(client, "c", 10**6)) as other:
                await anext(other)
                await all_of(client, "a", 3, history_length=3 * number - 3)
                await asyncio.sleep(0.05)
                assert len(worker.streams) == 1, "while one answer runs it stays"
            await until(lambda: not worker.lanes["c"].busy)
            worker.lanes["c"].token_ids.clear()
            await until(lambda: not worker.streams)
            assert worker.calls["StreamAnswers"] == number


async def test_answers_that_come_one_soon_after_another_keep_the_stream() -> None:
    async with worker_and_client(FakeWorker()) as (worker, client):
        for number in range(3):
            await asyncio.gather(*(all_of(client, name, 3, history_length=3 * number) for name in NAMES))
        assert worker.calls["StreamAnswers"] == 1
