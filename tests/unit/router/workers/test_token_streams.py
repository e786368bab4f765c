"""The tokens of several answers of a worker by one stream: each has all of its own, and none of another's."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
import pytest

from kakeya_router.contract.generates import Done, Token
from kakeya_router.workers import answers, token_streams
from kakeya_router.workers.worker_client import RunningCall, WorkerClient
from kakeya_router.workers.worker_errors import WorkerFault, WorkerUnreachable
from kakeya_shared.contract.features import TOKEN_STREAM
from kakeya_shared.errors.tree import OperationStopped, SessionClosed
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from tests.unit.router.fake_worker import CREDITS, EVERY_FEATURE, FakeWorker, Lane, TokenStream, generate
from tests.unit.router.stack import Client, Stack, eventually

NAMES = ("a", "b", "c")
FIRST = 100
"""The first token of a fake worker's lane that is empty."""
NEVER_SECONDS = 3600.0


@asynccontextmanager
async def worker_and_client(worker: FakeWorker) -> AsyncIterator[tuple[FakeWorker, WorkerClient]]:
    """With open lanes of some sessions."""
    async with worker:
        worker.lanes |= {name: Lane(1, 4, 16, refuses=False) for name in NAMES}
        client = WorkerClient(worker.address)
        client.see(is_there=True, streams_tokens=True)
        try:
            yield worker, client
        finally:
            await client.aclose()


async def all_of(client: WorkerClient, name: str, max_tokens: int, **given: Any) -> list[Token | Done]:
    return [event async for event in generate(client, name, max_tokens, **given)]


@asynccontextmanager
async def beside_another(client: WorkerClient) -> AsyncIterator[None]:
    """An answer of session "c" runs meanwhile, and comes by its own call."""
    async with aclosing(generate(client, "c", 10**6)) as other:
        await anext(other)
        yield


async def take(events: AsyncGenerator[Token | Done, None], taken: list[Token | Done]) -> None:
    """All that come, until they fail."""
    async for event in events:
        taken += [event]


def token_ids(events: Sequence[Token | Done]) -> list[int]:
    return [event.token_id for event in events if isinstance(event, Token)]


def ways(worker: FakeWorker) -> dict[str, bool]:
    """By session, of its latest Generate, whether the tokens were to come by a stream."""
    return {request.session_id: request.HasField("token_stream") for request in worker.generating}


async def until(condition: Any) -> None:
    async def is_met() -> bool:
        return bool(condition())

    await eventually(is_met)


async def test_answers_beside_one_another_share_a_stream_and_a_lone_one_has_none() -> None:
    async with worker_and_client(FakeWorker()) as (worker, client):
        assert len(await all_of(client, "a", 3)) == 4
        assert ways(worker) == {"a": False}
        worker.lanes["a"].token_ids.clear()
        found = await asyncio.gather(*(all_of(client, name, 200) for name in NAMES))
        for events in found:
            assert token_ids(events) == [FIRST + number for number in range(200)]
            assert isinstance(events[-1], Done)
            assert events[-1].generated_token_count == 200
        assert ways(worker) == {"a": False, "b": True, "c": True}
        assert worker.calls["StreamTokens"] == 1
        assert all(lane.num_acknowledged > 200 - CREDITS for lane in worker.lanes.values())


async def test_one_that_is_not_read_pauses_and_holds_up_no_other() -> None:
    async with worker_and_client(FakeWorker()) as (worker, client), beside_another(client):
        async with aclosing(generate(client, "a", 1000)) as unread:
            for _ in range(10):
                await anext(unread)
            assert len(token_ids(await all_of(client, "b", 500))) == 500
            await until(lambda: len(worker.lanes["a"].token_ids) == 9 + CREDITS)  # the tenth is not passed on yet
            assert len([event async for event in unread]) == 990 + 1
        assert ways(worker) == {"a": True, "b": True, "c": False}


async def test_what_was_produced_before_counts() -> None:
    async with worker_and_client(FakeWorker()) as (worker, client), beside_another(client):
        events = await all_of(client, "a", 1000, produced=[1] * 40)
        assert len(token_ids(events)) == 960
        assert worker.lanes["a"].num_acknowledged > 1000 - CREDITS


async def test_few_tokens_are_acknowledged_after_a_while() -> None:
    async with (
        worker_and_client(FakeWorker()) as (worker, client),
        beside_another(client),
        aclosing(generate(client, "a", 1000)) as few,
    ):
        for _ in range(4):
            await anext(few)
        await until(lambda: worker.lanes["a"].num_acknowledged == 3)


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

    async def StreamTokens(
        self, requests: AsyncIterator[pb.StreamTokensRequest], context: Any
    ) -> AsyncGenerator[pb.StreamTokensResponse, None]:
        is_short = self.short_streams > 0
        self.short_streams -= is_short
        num_responses = 0
        async with aclosing(super().StreamTokens(requests, context)) as responses:  # type: ignore[type-var]  # it is a generator
            async for response in responses:
                yield response
                num_responses += 1
                if self.ends.is_set() or (is_short and num_responses == 5):
                    return


async def test_answers_of_a_stream_that_ends_fail_once_their_tokens_are_taken() -> None:
    worker = StreamEnder()
    async with worker_and_client(worker) as (_, client), beside_another(client):
        async with aclosing(generate(client, "a", 10**6)) as answer:
            first = await anext(answer)
            assert isinstance(first, Token)
            worker.ends.set()
            taken = [first.token_id]
            with pytest.raises(WorkerUnreachable, match="stream of tokens has ended"):
                async for event in answer:
                    assert isinstance(event, Token)
                    taken.append(event.token_id)
        assert taken == [FIRST + number % 800 for number in range(len(taken))]
        worker.ends.clear()
        await until(lambda: not worker.lanes["a"].busy)
        worker.lanes["a"].token_ids.clear()
        assert len(token_ids(await all_of(client, "a", 20))) == 20  # by another one
        assert worker.calls["StreamTokens"] == 2


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
    assert worker.calls["StreamTokens"] > 1
    assert worker.calls["Stop"] > 0


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
    assert any(ways(worker).values())


async def test_a_worker_that_does_not_name_it_is_asked_for_no_stream(client: Client, stack: Stack) -> None:
    worker = await stack.worker(client, features=[name for name in EVERY_FEATURE if name != TOKEN_STREAM])
    sessions = [await client.session() for _ in NAMES]
    for session_id in sessions:
        await client.append(session_id, [1])
    await stack.routers[0]._parts.base.fleet.look()
    await asyncio.gather(*(client.generate(session_id, 50) for session_id in sessions))
    assert not any(ways(worker).values())
    assert worker.calls["StreamTokens"] == 0


class Unable(FakeWorker):
    """Of before there were streams of tokens; its place was that of a newer one."""

    async def StreamTokens(self, requests: AsyncIterator[pb.StreamTokensRequest], context: Any) -> Any:
        self.calls["StreamTokens"] += 1
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        yield pb.StreamTokensResponse()

    def _stream(self, request: pb.GenerateRequest) -> TokenStream | None:
        return None


async def test_a_worker_that_has_none_gives_its_tokens_by_the_calls() -> None:
    async with worker_and_client(Unable()) as (worker, client), beside_another(client):
        assert len(token_ids(await all_of(client, "a", 500))) == 500
        assert worker.calls["StreamTokens"] == 1
        assert not any(ways(worker).values())


class Forgetful(FakeWorker):
    """It has taken the place of a newer one, and drops a field that it does not know."""

    def _stream(self, request: pb.GenerateRequest) -> TokenStream | None:
        return None


async def test_tokens_that_come_by_the_call_all_the_same_are_taken() -> None:
    async with worker_and_client(Forgetful()) as (worker, client), beside_another(client):
        assert len(await all_of(client, "a", 30)) == 31
        assert ways(worker)["a"]


class Silent(FakeWorker):
    """Its streams never begin."""

    async def StreamTokens(self, requests: AsyncIterator[pb.StreamTokensRequest], context: Any) -> Any:
        await asyncio.Event().wait()
        yield pb.StreamTokensResponse()


async def test_a_stream_that_does_not_open_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_streams, "_OPEN_SECONDS", 0.01)
    async with worker_and_client(Silent()) as (worker, client), beside_another(client):
        assert len(token_ids(await all_of(client, "a", 100))) == 100
        assert not ways(worker)["a"]


class Losing(FakeWorker):
    """Its streams lose the last token of each answer of session "a"."""

    def _stream(self, request: pb.GenerateRequest) -> TokenStream | None:
        stream = super()._stream(request)
        if stream is None or request.session_id != "a":
            return stream
        put, number = stream.put, request.answer

        def lose(answer: int, token_id: int, detail: pb.TokenDetail | None) -> None:
            if answer != number or token_id != FIRST + 4:
                put(answer, token_id, detail)

        stream.put = lose  # type: ignore[method-assign]  # one token is lost on its way
        return stream


async def test_last_tokens_that_do_not_come_are_missed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_streams, "_LAST_TOKENS_SECONDS", 0.01)
    async with worker_and_client(Losing()) as (_, client), beside_another(client):
        taken: list[Token | Done] = []
        with pytest.raises(WorkerUnreachable, match="last tokens"):
            await take(generate(client, "a", 5), taken)
        assert token_ids(taken) == [FIRST + number for number in range(4)]


async def test_a_call_that_ends_without_done_is_a_fault() -> None:
    worker = FakeWorker()
    worker.forgets_done = True
    async with worker_and_client(worker) as (_, client), beside_another(client):
        taken: list[Token | Done] = []
        with pytest.raises(WorkerFault, match="without `done`"):
            await take(generate(client, "a", 5), taken)
        assert len(taken) <= 5


async def test_an_error_of_the_call_comes_after_what_came_before() -> None:
    async with worker_and_client(FakeWorker()) as (worker, client), beside_another(client):
        async with aclosing(generate(client, "a", 10**6)) as answer:
            await anext(answer)
            await until(lambda: len(worker.lanes["a"].token_ids) >= CREDITS)
            await asyncio.sleep(0.1)  # they are here
            worker.lanes["a"].end = SessionClosed("closed")
            taken: list[Token | Done] = []
            with pytest.raises(SessionClosed):
                await take(answer, taken)
        assert len(taken) >= CREDITS - 1


async def test_nothing_comes_after_a_call_was_cancelled() -> None:
    """Its session may be another router's by then."""
    async with worker_and_client(FakeWorker()) as (worker, client), beside_another(client):
        running = RunningCall()
        async with aclosing(generate(client, "a", 10**6, running=running)) as answer:
            await anext(answer)
            await until(lambda: len(worker.lanes["a"].token_ids) >= CREDITS)
            await asyncio.sleep(0.1)  # they are here
            running.cancel()
            await asyncio.sleep(0.1)
            with pytest.raises(asyncio.CancelledError):
                await anext(answer)


async def test_a_stream_that_the_worker_does_not_know_is_told() -> None:
    worker = FakeWorker()
    async with worker_and_client(worker) as (_, client), beside_another(client):
        assert len(await all_of(client, "a", 3)) == 4
        known, worker.streams = worker.streams, {}
        with pytest.raises(OperationStopped, match="no such stream"):
            await all_of(client, "b", 3)
        worker.streams = known


async def test_a_stream_goes_when_nothing_runs_and_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_LINGER_SECONDS", 0.01)
    async with worker_and_client(FakeWorker()) as (worker, client):
        for number in (1, 2):
            async with beside_another(client):
                await all_of(client, "a", 3, history_length=3 * number - 3)
                await asyncio.sleep(0.05)
                assert len(worker.streams) == 1, "while one answer runs it stays"
            await until(lambda: not worker.lanes["c"].busy)
            worker.lanes["c"].token_ids.clear()
            await until(lambda: not worker.streams)
            assert worker.calls["StreamTokens"] == number


async def test_answers_that_come_one_soon_after_another_keep_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_LINGER_SECONDS", NEVER_SECONDS)
    async with worker_and_client(FakeWorker()) as (worker, client):
        for number in range(3):
            await asyncio.gather(*(all_of(client, name, 3, history_length=3 * number) for name in NAMES))
        assert worker.calls["StreamTokens"] == 1
        assert client._streams._timer is not None
        client._streams._timer.cancel()
