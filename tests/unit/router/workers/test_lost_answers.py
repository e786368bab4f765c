"""What arrives late or never: heartbeats from before a rewind, and answers of Redis to what it has done."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kakeya_router.operations.append import Appending
from kakeya_router.operations.operation import Operation
from kakeya_router.operations.operations import Operations
from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.sessions.journal_store import JournalStore
from kakeya_router.store.sessions.operation_store import OperationStore
from kakeya_router.workers.fleet import Fleet
from kakeya_shared.errors.tree import (
    InvariantViolated,
    NoWorker,
    OperationStopped,
    SessionNotFound,
    StoreUnavailable,
)
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import verifier_pb2 as worker_api
from tests.unit.router.fake_worker import WINDOW, FakeWorker
from tests.unit.router.operations.test_recovery import Pair, called, expected, files, free_length, pair, token_ids
from tests.unit.router.operations.test_takeover import OPERATION
from tests.unit.router.sessions.test_forks import fork_of
from tests.unit.router.sessions.test_rewinds import appended_now, record_of, turn
from tests.unit.router.stack import FORGETFUL, Client, Stack, answer, begin_ahead, eventually

__all__ = ["files", "pair"]  # fixtures

Lose = Callable[[str], None]


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Lose:
    """Has the answer to the next run of a script get lost; a connection cannot be cut at that moment."""
    run = RedisConnection.script
    lost: list[str] = []

    async def script(self: RedisConnection, name: str, keys: Any, **arguments: Any) -> Any:
        reply = await run(self, name, keys, **arguments)
        if name in lost:
            lost.remove(name)
            raise StoreUnavailable("the answer was lost", retry_after_seconds=0.1)
        return reply

    monkeypatch.setattr(RedisConnection, "script", script)
    return lost.append


@pytest.fixture
async def silent(stack: Stack, client: Client) -> FakeWorker:
    """A worker whose heartbeats are the test's."""
    return await stack.worker(client, beating=False)


async def test_a_heartbeat_from_before_a_rewind_is_stale(client: Client, silent: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, range(10))
    late = silent.heartbeat_request(complete=True)
    await client.rewind(session_id, 6)
    await answer(client.registry.Heartbeat(late))
    silent.keep_beating(client.registry)
    assert (await client.info(session_id)).history_length == 6
    fork_id = (await client.create(**fork_of(session_id))).session_id
    assert len(silent.lanes[fork_id].token_ids) == 6
    assert (await client.append(session_id, [9])).history_length == 7


async def test_a_heartbeat_of_another_lane_than_the_rewound_one_counts(
    stack: Stack, client: Client, silent: FakeWorker
) -> None:
    session_id = await client.session()
    await client.append(session_id, range(10))
    await client.rewind(session_id, 6)
    silent.lanes[session_id].token_ids.append(7)
    await begin_ahead(stack, session_id)
    await client.beat(silent)
    assert (await client.info(session_id)).history_length == 7


async def test_a_stale_heartbeat_in_the_middle_of_a_rewind(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await stack.router(**FORGETFUL)
    worker = await stack.worker(client, beating=False)
    session_id = await client.session()
    for _ in range(3):
        await client.append(session_id, [1, 2])
    late, rewind = worker.heartbeat_request(complete=True), JournalStore.rewind

    async def rewind_and_hear(*arguments: Any) -> Any:
        reply = await rewind(*arguments)
        await answer(client.registry.Heartbeat(late))
        return reply

    monkeypatch.setattr(JournalStore, "rewind", rewind_and_hear)
    assert (await client.rewind(session_id, 3)).history_length == 3
    assert (await client.append(session_id, [5])).history_length == 4


async def test_a_rewind_that_is_settled_late_stops_nobody_else(
    stack: Stack, client: Client, worker: FakeWorker, lose: Lose, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await client.session()
    await client.append(session_id, range(6))
    redis_answers, look_again = asyncio.Event(), Operations._look_again

    async def late(operations: Operations, operation: Operation) -> None:
        await redis_answers.wait()
        await look_again(operations, operation)

    monkeypatch.setattr(Operations, "_look_again", late)
    lose("end_operation")
    with pytest.raises(StoreUnavailable):
        await client.rewind(session_id, 4)
    worker.pause_in = 1
    call = (await stack.router()).generating(session_id, 50)
    first = await call.read()
    redis_answers.set()
    await eventually(lambda: called(worker, "Stop", 1))
    worker.flowing.set()
    assert [first.token_id, *await token_ids(call)] == expected(4, 54)
    assert worker.calls["Generate"] == 1


async def test_a_client_that_goes_while_its_append_is_written_through(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stack.worker(client)
    session_id = await client.session()
    asked, left, answers = asyncio.Event(), asyncio.Event(), asyncio.Event()
    end_operation, ended = OperationStore.end_operation, Operation.ended

    async def slow(*arguments: Any, **more: Any) -> Any:
        asked.set()
        await answers.wait()
        return await end_operation(*arguments, **more)

    async def seen(operation: Operation) -> bool:
        left.set()
        return await ended(operation)

    monkeypatch.setattr(OperationStore, "end_operation", slow)
    monkeypatch.setattr(Operation, "ended", seen)
    call = client.runtime.AppendTokens(api.AppendTokensRequest(session_id=session_id, token_ids=[1, 2]))
    await asked.wait()
    call.cancel()
    await left.wait()
    answers.set()
    await eventually(lambda: is_free(stack, session_id))
    assert (await client.append(session_id, [3])).history_length == 3


async def test_what_kept_redis_from_answering_stays_the_cause(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stack.worker(client)
    session_id = await client.session()
    append, raised = Appending.append, list[Exception]()

    async def silent(*_: Any) -> Any:
        raise StoreUnavailable("silent", retry_after_seconds=0.1) from OSError("refused")

    async def watched(*arguments: Any) -> Any:
        try:
            return await append(*arguments)
        except StoreUnavailable as error:
            raised.append(error)
            raise

    monkeypatch.setattr(Appending, "add", silent)
    monkeypatch.setattr(Appending, "append", watched)
    with pytest.raises(StoreUnavailable):
        await client.append(session_id, [1])
    assert [type(error.__cause__) for error in raised] == [OSError]


async def test_a_refusal_whose_session_cannot_be_freed_at_once(stack: Stack, client: Client, lose: Lose) -> None:
    """The client is told of the store; the session is freed as soon as that answers again."""
    await stack.worker(client)
    session_id = await client.session()
    lose("release_operation")
    with pytest.raises(StoreUnavailable):
        await client.generate(session_id, 3)  # of an empty history
    await eventually(lambda: is_free(stack, session_id))
    assert (await client.append(session_id, [1])).history_length == 1


async def test_a_failure_whose_answer_is_lost(stack: Stack, client: Client, lose: Lose) -> None:
    worker = await stack.worker(client)
    session_id = await client.session()
    worker.failures["Append"] = [InvariantViolated("slots", metadata={"invariant": "inv1"})]
    lose("fail_session")
    with pytest.raises(StoreUnavailable):
        await client.append(session_id, [1])
    await eventually(lambda: is_free(stack, session_id))
    info = await client.info(session_id)
    assert (info.state, info.cache_invariant_inv1_violations) == (api.SESSION_STATE_FAILED, 1)


async def test_a_source_that_goes_while_it_is_looked_at(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stack.worker(client)
    source = await client.session()
    await client.append(source, [1])
    run = RedisConnection.script

    async def script(self: RedisConnection, name: str, *arguments: Any, **named: Any) -> Any:
        if name == "use_source":
            await stack.redis.delete(f"kakeya:{{tiny}}:session:{source}")
        return await run(self, name, *arguments, **named)

    monkeypatch.setattr(RedisConnection, "script", script)
    with pytest.raises(SessionNotFound):
        await client.create(**fork_of(source))


@pytest.mark.parametrize("script", ["rewind_session", "end_operation"])
@pytest.mark.parametrize("settings", [{}, FORGETFUL], ids=["recoverable", "forgetful"])
async def test_a_rewind_whose_answer_is_lost(stack: Stack, lose: Lose, script: str, settings: dict[str, Any]) -> None:
    client = await stack.router(**settings)
    await stack.worker(client)
    session_id = await client.session()
    for _ in range(3):
        await client.append(session_id, [1, 2])
    lose(script)
    with pytest.raises(StoreUnavailable):
        await client.rewind(session_id, 3)
    assert await eventually(lambda: free_length(client, session_id)) == 3
    assert (await client.append(session_id, [5])).history_length == 4


async def test_a_rewind_that_gives_its_lane_up_and_whose_answer_is_lost(
    stack: Stack, client: Client, pair: Pair, lose: Lose
) -> None:
    session_id = await client.session()
    lengths = [await turn(stack, client, session_id, 9, WINDOW) for _ in range(4)]
    lose("rewind_session")
    with pytest.raises(StoreUnavailable):
        await client.rewind(session_id, lengths[1])
    await eventually(lambda: is_free(stack, session_id))
    record = await record_of(stack, session_id)
    assert (record["journal_length"], record["state"]) == (str(lengths[1]), "parked")
    assert int(record["operation_start"]) <= lengths[1]
    assert (await client.append(session_id, [5], expected_history_length=lengths[1])).history_length == lengths[1] + 1


async def is_free(stack: Stack, session_id: str) -> bool:
    return not await stack.redis.exists(OPERATION.format(session_id))


@pytest.mark.parametrize("is_beating", [False, True])
async def test_a_takeover_whose_answer_is_lost_is_made_up_for(
    stack: Stack, client: Client, lose: Lose, is_beating: bool
) -> None:
    """The dead router's client has seen what the worker has committed and the journal lacks."""
    worker = await stack.worker(client)
    session_id = await client.session()
    await client.append(session_id, range(4))
    if not is_beating:
        worker.stop_beating()
    worker.lanes[session_id].token_ids += [101, 102, 103]
    left: dict[str, Any] = {"claim": "theirs", "op_id": "theirs", "kind": "generate", "router": "dead"}
    left |= {"start_length": "4", "lease_until_ms": "1"}

    await stack.redis.hset(OPERATION.format(session_id), mapping=left)
    lose("begin_operation")
    with pytest.raises(StoreUnavailable):
        await client.append(session_id, [9])
    assert (await eventually(lambda: appended_now(client, session_id))).history_length == 8
    assert worker.lanes[session_id].token_ids == [0, 1, 2, 3, 101, 102, 103, 9]
    assert (await client.info(session_id)).history_length == 8


class OvereagerWorker(FakeWorker):
    """Its lane gets a token that nobody has sent, once."""

    is_eager = True

    async def Append(self, request: worker_api.AppendRequest, context: object) -> worker_api.AppendResponse:
        await super().Append(request, context)
        lane = self.lanes[request.session_id]
        if self.is_eager:
            lane.token_ids.append(9)
        self.is_eager = False
        return worker_api.AppendResponse(lane=lane.state())


async def test_what_is_not_in_the_history_is_not_said_to_be(client: Client) -> None:
    async with OvereagerWorker() as worker:
        await client.join(worker)
        session_id = await client.session()
        with pytest.raises(OperationStopped):
            await client.append(session_id, [1, 2])
        assert (await client.append(session_id, [3], expected_history_length=2)).history_length == 3
        assert worker.lanes[session_id].token_ids == [1, 2, 3]


async def test_a_session_is_taken_back_by_workers_that_are_known(
    client: Client, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2, 3])
    with monkeypatch.context() as unknown:
        unknown.setattr(Fleet, "worker", lambda fleet, incarnation: None)  # for a moment, right after it has joined
        with pytest.raises(NoWorker):
            await client.rewind(session_id, 2)
    assert worker.lanes[session_id].token_ids == [1, 2, 3]
    assert (await client.rewind(session_id, 2)).history_length == 2
