"""Sessions for one answer: they close themselves when it has ended, and no snapshot of them is written."""

import asyncio
from typing import Any

import grpc
import pytest

from kakeya_router.store import persistence
from kakeya_shared.errors.tree import (
    Draining,
    EmptyHistory,
    Internal,
    InvalidField,
    KakeyaError,
    OperationRunning,
    SessionClosed,
    SessionNotFound,
    StoreUnavailable,
    WorkerLost,
)
from kakeya_stubs.admin.v1 import admin_pb2
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import FakeWorker, SnapshotFiles
from tests.unit.router.keyed import keyed_on
from tests.unit.router.lapses import die
from tests.unit.router.operations.test_recovery import (
    Pair,
    broken_off,
    expected,
    files,
    ledgers,
    pair,
    resuming,
    token_ids,
)
from tests.unit.router.operations.test_takeover import OPERATION
from tests.unit.router.sessions.test_forks import fork_of
from tests.unit.router.sessions.test_rewinds import record_of
from tests.unit.router.stack import Client, Stack, answer, eventually
from tests.unit.router.workers.test_lost_answers import Lose, lose

__all__ = ["files", "lose", "pair"]  # fixtures


async def asked(client: Client, num_tokens: int = 20, **fields: Any) -> str:
    session_id = await client.session(ephemeral=True, **fields)
    await client.append(session_id, range(num_tokens))
    return session_id


async def nothing_left(stack: Stack, client: Client) -> bool:
    """Nothing but the lengths that a client may still ask for, and no lane in any ledger."""
    left = {key for key in await stack.session_keys() if ":closed:" not in key}
    return not left and all(ledger == (0, 0, 0) for ledger in (await ledgers(client)).values())


async def test_a_session_for_one_answer_is_closed_when_its_stream_ends(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    created = await client.create(ephemeral=True)
    assert created.ephemeral
    session_id = created.session_id
    assert not (await client.create()).ephemeral
    for _ in range(3):
        await client.append(session_id, range(30))
    worker = pair.of(session_id)
    *_, done = await client.generate(session_id, 5)
    assert done.done.history_length == 95
    assert session_id not in worker.lanes
    assert not await record_of(stack, session_id)
    assert (await client.close(session_id), await client.close(session_id)) == (95, 95)
    for call in (
        client.append(session_id, [1]),
        client.generate(session_id, 1),
        client.info(session_id),
        client.create(**fork_of(session_id)),
        client.create(**fork_of(session_id, boundary=30)),
        client.rewind(session_id, 3),
        client.park(session_id),
    ):
        with pytest.raises(SessionNotFound):
            await call
    assert (worker.calls["WriteSnapshot"], worker.calls["DeleteSnapshots"], files.contents) == (0, 0, {})


async def test_done_does_not_wait_for_the_lane_and_a_close_does(stack: Stack, client: Client) -> None:
    class Slow(FakeWorker):
        may_close = asyncio.Event()

        async def CloseSession(self, request: Any, context: object) -> Any:
            await self.may_close.wait()
            return await super().CloseSession(request, context)

    async with Slow() as worker:
        worker.closes = False
        await client.join(worker)
        worker.keep_beating(client.registry)
        session_id = await asked(client)
        call = client.generating(session_id, 2)
        responses = [await call.read() for _ in range(3)]
        assert [each.WhichOneof("payload") for each in responses] == ["token_id", "token_id", "done"]
        ending, closing = asyncio.create_task(call.read()), asyncio.create_task(client.close(session_id))
        await asyncio.sleep(0.1)
        assert not closing.done()
        assert await ending is grpc.aio.EOF  # a worker that hangs does not hold it up for long
        assert not closing.done()
        worker.may_close.set()
        assert await closing == 22
        await eventually(lambda: nothing_left(stack, client))


@pytest.mark.parametrize("closes", [True, False])
async def test_a_worker_that_can_frees_the_lane_with_the_answer(
    stack: Stack, client: Client, worker: FakeWorker, closes: bool
) -> None:
    """One of an older version is asked to once more."""
    worker.closes = closes
    await client.generate(await asked(client), 5)
    await eventually(lambda: nothing_left(stack, client))
    assert (worker.lanes, worker.calls["CloseSession"]) == ({}, 0 if closes else 1)
    other = await client.session()
    await client.append(other, range(20))
    await client.generate(other, 5)
    assert [request.closes_session for request in worker.generating] == [True, False], "that of others stays"
    assert len(worker.lanes) == 1


async def test_the_end_of_an_answer_may_be_lost_with_its_lane(stack: Stack, client: Client) -> None:
    """The lane is free, and nobody was told: the answer is made up for as any that breaks off."""

    class Broken(FakeWorker):
        async def _generate(self, request: Any, way: Any = None) -> Any:
            is_first = not self.generating
            async for response in super()._generate(request, way):
                if is_first and response.HasField("done"):
                    raise Draining("it breaks off")
                yield response

    async with Broken() as worker:
        await client.join(worker)
        worker.keep_beating(client.registry)
        session_id = await asked(client)
        *tokens, last = await client.generate(session_id, 5)
        assert [each.token_id for each in tokens] == expected(20, 25)
        assert (last.done.history_length, last.done.generated_token_count) == (25, 5)
        assert [list(request.previous_token_ids) for request in worker.generating] == [[], expected(20, 25)]
        assert worker.opening == [session_id, session_id]
        await eventually(lambda: nothing_left(stack, client))


async def test_the_lane_outlasts_an_answer_that_the_journal_cannot_make_up_for(stack: Stack) -> None:
    client = await stack.router(max_append_tokens=2, journal_tokens=1)
    worker = await stack.worker(client)
    session_id = await client.session(ephemeral=True)
    for _ in range(3):
        await client.append(session_id, [1, 2])
    await client.generate(session_id, 2)
    await eventually(lambda: nothing_left(stack, client))
    assert [request.closes_session for request in worker.generating] == [False]
    assert (worker.lanes, worker.calls["CloseSession"]) == ({}, 1)


async def test_a_cancel_ends_it(stack: Stack, client: Client, worker: FakeWorker) -> None:
    call = client.generating(session_id := await asked(client), 100_000)
    await call.read()
    call.cancel()
    await eventually(lambda: nothing_left(stack, client))
    assert not worker.lanes
    assert await client.close(session_id) > 20


@pytest.mark.parametrize("error", [RuntimeError("a bug"), Internal("no idea"), InvalidField("not that")])
async def test_an_error_after_it_began_ends_it(
    stack: Stack, client: Client, worker: FakeWorker, error: Exception
) -> None:
    session_id = await asked(client)
    worker.failures["Generate"] = [error]
    with pytest.raises((KakeyaError, grpc.aio.AioRpcError)):
        await client.generate(session_id, 5)
    await eventually(lambda: nothing_left(stack, client))
    assert await client.close(session_id) == 20


async def test_what_is_refused_before_it_begins_ends_nothing(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session(ephemeral=True)
    with pytest.raises(EmptyHistory):
        await client.generate(session_id, 5)
    with pytest.raises(InvalidField):
        await client.generate(session_id, 0)
    await client.append(session_id, range(4))
    with pytest.raises(KakeyaError):
        await client.generate(session_id, 5, expected_history_length=3)
    assert (await client.generate(session_id, 5))[-1].done.history_length == 9


async def test_a_close_by_its_client_wins_and_is_remembered(client: Client, worker: FakeWorker) -> None:
    session_id = await asked(client)
    assert (await client.close(session_id), await client.close(session_id)) == (20, 20)
    session_id = await asked(client)
    worker.flowing.clear()
    call = client.generating(session_id, 5)
    reading = asyncio.create_task(answer(token_ids(call)))
    await call.initial_metadata()
    assert await client.close(session_id) == 20
    worker.flowing.set()
    with pytest.raises(SessionClosed):
        await reading
    assert await client.close(session_id) == 20


async def test_what_another_tenant_closed_is_nobodys_elses(redis_url: str) -> None:
    async with keyed_on(redis_url) as keyed:
        await keyed.worker()
        one, other = await keyed.tenant("one"), await keyed.tenant("other")
        session_id = await asked(one)
        with pytest.raises(SessionNotFound):
            await other.close(session_id)
        await one.generate(session_id, 2)
        with pytest.raises(SessionNotFound):
            await other.close(session_id)
        assert await one.close(session_id) == 22


# What is lost


async def test_a_lost_worker_is_made_up_for_by_the_journal(
    client: Client, pair: Pair, files: SnapshotFiles, stack: Stack
) -> None:
    session_id = await asked(client, 60)
    left = pair.of(session_id)
    left.pause_in = 1
    call = client.generating(session_id, 50)
    await call.read()
    first = await call.read()
    await die(left)
    assert [first.token_id, *await token_ids(call)] == expected(60, 110)
    assert files.contents == {}
    await eventually(lambda: nothing_left(stack, client))


async def test_what_the_journal_does_not_hold_is_lost(stack: Stack, files: SnapshotFiles) -> None:
    client = await stack.router(max_append_tokens=2, journal_tokens=1)
    worker = await stack.worker(client, files=files)
    session_id = await client.session(ephemeral=True)
    for _ in range(3):
        await client.append(session_id, [1, 2])  # no full journal refuses it
    worker.incarnation += "-reborn"
    await client.join(worker)
    with pytest.raises(WorkerLost):
        await client.generate(session_id, 2)


async def test_who_finds_no_lane_in_the_middle_of_an_answer_leaves_nothing(stack: Stack, worker: FakeWorker) -> None:
    client = await stack.router(admission="queue", queue_seconds=1)
    call = client.generating(session_id := await asked(client), 100_000)
    await call.read()
    await die(worker)
    with pytest.raises(KakeyaError):
        await answer(token_ids(call))
    await eventually(lambda: nothing_left(stack, client))
    assert await client.close(session_id) > 20


async def test_a_lost_router_is_made_up_for(stack: Stack, client: Client, worker: FakeWorker) -> None:
    """Its client goes on at another one, and the session ends with that."""
    session_id = await asked(client)
    worker.flowing.clear()
    held = {"claim": "theirs", "op_id": "theirs", "kind": "generate", "router": "dead", "start_length": "20"}
    await stack.redis.hset(OPERATION.format(session_id), mapping=held | {"lease_until_ms": "1"})
    await stack.redis.hset(f"kakeya:{{tiny}}:session:{session_id}", mapping={"operation_id": "theirs"})
    await stack.redis.hset(f"kakeya:{{tiny}}:session:{session_id}", mapping={"operation_start": 20})
    worker.lanes[session_id].token_ids += expected(20, 22)
    worker.flowing.set()
    call = resuming(client, session_id, "theirs", [], max_tokens=5)
    assert await token_ids(call) == expected(20, 25)
    await eventually(lambda: nothing_left(stack, client))


async def test_an_answer_that_a_lost_router_left_has_ended_for_all_others(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    session_id = await asked(client)
    held = {"claim": "theirs", "op_id": "theirs", "kind": "generate", "router": "dead", "start_length": "20"}
    await stack.redis.hset(OPERATION.format(session_id), mapping=held | {"lease_until_ms": "1"})
    with pytest.raises(SessionNotFound):
        await eventually(lambda: appended_unless_busy(client, session_id))
    await eventually(lambda: nothing_left(stack, client))


async def appended_unless_busy(client: Client, session_id: str) -> api.AppendTokensResponse | None:
    try:
        return await client.append(session_id, [1])
    except OperationRunning:
        return None


async def test_a_router_that_shuts_down_leaves_the_answer_to_another(stack: Stack) -> None:
    leaving = await stack.router(shutdown_grace_seconds=0.1, worker_lease_seconds=60)
    worker = await stack.worker(leaving, beating=False)
    session_id = await asked(leaving)
    worker.pause_in = 10  # however long the router takes to leave, it is in the middle of the answer then
    op_id, seen = await broken_off(leaving, session_id, 3, max_tokens=1_000)
    await stack.stop_routers()
    worker.flowing.set()
    client = await stack.router(worker_lease_seconds=60)
    worker.keep_beating(client.registry)
    call = resuming(client, session_id, op_id, seen, max_tokens=1_000)
    assert [*seen, *await token_ids(call)] == expected(20, 1_020)
    await eventually(lambda: nothing_left(stack, client))


@pytest.mark.parametrize("script", ["end_operation", "delete_session"])
async def test_redis_may_not_answer_at_its_end(
    stack: Stack,
    client: Client,
    worker: FakeWorker,
    lose: Lose,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
) -> None:
    monkeypatch.setattr(persistence, "_PAUSE_SECONDS", 0.01)
    session_id = await asked(client)
    lose(script)
    if script == "end_operation":
        with pytest.raises(StoreUnavailable):
            await client.generate(session_id, 5)
    else:
        await client.generate(session_id, 5)
    await eventually(lambda: nothing_left(stack, client))
    assert await client.close(session_id) == 25


# Other ways than an answer


async def test_it_is_parked_by_its_journal_and_taken_back_without_a_file(
    client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    session_id = await asked(client)
    assert (await client.park(session_id)).history_length == 20
    await client.append(session_id, [3])
    short = await asked(client, 9)
    assert (await client.rewind(short, 5)).history_length == 5
    assert len(await client.generate(session_id, 2)) >= 3
    assert files.contents == {}


async def test_forks_of_it_are_sessions_of_their_own(stack: Stack, client: Client, worker: FakeWorker) -> None:
    source = await asked(client)
    lasting = await client.create(**fork_of(source))
    fleeting = (
        await answer(
            client.runtime.ForkSession(
                api.ForkSessionRequest(source=api.ForkPoint(session_id=source, boundary=10), ephemeral=True)
            )
        )
    ).session
    assert (lasting.ephemeral, fleeting.ephemeral) == (False, True)
    for session_id in (source, lasting.session_id, fleeting.session_id):
        await client.generate(session_id, 2)
    assert list(worker.lanes) == [lasting.session_id]
    assert (await client.append(lasting.session_id, [1])).history_length == 23


async def test_a_close_waits_for_the_one_that_is_under_way(stack: Stack, client: Client, worker: FakeWorker) -> None:
    session_id = await asked(client)
    record = next(key for key in await stack.session_keys() if key.endswith(f":session:{session_id}"))
    await stack.redis.hset(record, "state", "closing")
    await stack.redis.hset(record.replace(":session:", ":op:"), mapping={"kind": "close", "lease_until_ms": 1 << 50})
    closing = asyncio.create_task(client.close(session_id))
    await asyncio.wait([closing], timeout=0.1)
    assert not closing.done()
    await stack.redis.set(record.replace(":session:", ":closed:"), "20 ")
    await stack.redis.delete(record)
    assert await closing == 20


async def test_nobody_closed_what_is_no_session_id(stack: Stack, client: Client) -> None:
    with pytest.raises(SessionNotFound):
        await answer(client.admin.CloseSession(admin_pb2.CloseSessionRequest(session_id="nonsense")))
