"""Where a Turn is: in a session, in a fork of it, in a new one; what is left of it when it fails or has ended."""

import asyncio
from typing import Any

import grpc
import pytest

from kakeya_router.operations.operation import Operation
from kakeya_router.operations.operations import Operations
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_shared.contract.features import MASKED_ENDS
from kakeya_shared.errors.tree import (
    BoundaryNotReachable,
    EmptyHistory,
    HistoryLengthMismatch,
    Internal,
    InvalidField,
    InvariantViolated,
    NoCapacity,
    NoWorker,
    OperationRunning,
    SessionNotFound,
    StoreUnavailable,
    WorkerLost,
)
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.keyed import keyed_on
from tests.unit.router.lapses import be_lost
from tests.unit.router.operations.test_recovery import drained, expected
from tests.unit.router.operations.test_turn import called, idle, refused
from tests.unit.router.sessions.test_ephemeral import nothing_left
from tests.unit.router.sessions.test_rewinds import record_of
from tests.unit.router.stack import FORGETFUL, Client, Stack, Turned, answer, eventually, leave, turn_request
from tests.unit.router.workers.test_lost_answers import Lose, lose

__all__ = ["lose"]  # a fixture

PROMPT = [1, 2, 3]
CREATE: dict[str, Any] = {"request_id": "r", "client_label": "a turn's"}
FEATURED: dict[str, Any] = {"ignore_eos": True}


@pytest.fixture
async def source(client: Client, worker: FakeWorker) -> str:
    """With a turn that ended at 7 tokens."""
    return (await client.turn(turn_request(create={}, token_ids=PROMPT))).session.session_id


async def read(call: Any, number: int) -> list[api.TurnResponse]:
    """Its first events."""
    return [await call.read() for _ in range(number)]


async def gone(stack: Stack, worker: FakeWorker) -> bool:
    return not worker.lanes and not await stack.session_keys()


# In a new session


async def test_a_session_is_made(stack: Stack, client: Client, worker: FakeWorker) -> None:
    turned = await client.turn(turn_request(create={"sink": 2, "window": 9, "ttl_seconds": 60}, token_ids=PROMPT))
    session = turned.session
    assert (session.sink, session.window, session.history_length, session.kv_live_bytes) == (2, 9, 0, 0)
    assert turned.token_ids == expected(3, 7)
    assert (await client.append(session.session_id, [8])).history_length == 8


async def test_one_that_branches_off_is_made(client: Client, worker: FakeWorker, source: str) -> None:
    for boundary, length in ((None, 7), (5, 5)):
        fork_from = api.ForkPoint(session_id=source, boundary=boundary)
        turned = await client.turn(turn_request(create={"fork_from": fork_from}, token_ids=[9]))
        assert turned.session.session_id != source
        assert (turned.session.history_length, turned.appended.history_length) == (length, length + 1)
    turned = await client.turn(turn_request(create={"fork_from": api.ForkPoint(session_id=source)}))
    assert turned.token_ids == expected(7, 11)


async def test_a_session_with_a_feature_is_made_where_that_is(stack: Stack, client: Client) -> None:
    await stack.worker(client, num_lanes=100)
    able = await stack.worker(client, "worker-b", num_lanes=2, features=[MASKED_ENDS])
    request = turn_request(create={}, token_ids=PROMPT, **FEATURED)
    session_id = (await client.turn(request)).session.session_id
    assert session_id in able.lanes
    await refused(client.turn(turn_request((await client.session()), PROMPT, **FEATURED)), NoWorker, "session")
    fork = turn_request(create={"fork_from": api.ForkPoint(session_id=session_id)}, token_ids=[1], **FEATURED)
    assert (await client.turn(fork)).session.session_id in able.lanes
    await refused(client.turn(request), NoCapacity, "session")


@pytest.mark.parametrize("method", ["OpenSession", "Append"])
async def test_what_fails_before_it_has_appended_leaves_nothing(
    stack: Stack, client: Client, worker: FakeWorker, method: str
) -> None:
    worker.failures[method] = [Internal("a bug")]
    error, part = (NoWorker, "session") if method == "OpenSession" else (Internal, "append")
    await refused(client.turn(turn_request(create=CREATE, token_ids=PROMPT)), error, part)
    await eventually(lambda: gone(stack, worker))
    assert (await client.turn(turn_request(create=CREATE, token_ids=PROMPT))).session.history_length == 0


async def test_what_fails_later_leaves_the_session(client: Client, worker: FakeWorker) -> None:
    worker.failures["Generate"] = [Internal("a bug")]
    call = client.turning(turn_request(create=CREATE, token_ids=PROMPT))
    session, _ = await read(call, 2)
    with pytest.raises(Internal):
        await answer(call.read())
    assert (await client.info(session.session.session_id)).history_length == 3


async def test_a_client_that_leaves_before_it_has_appended_leaves_nothing(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    worker.flowing.clear()
    opening = client.turning(turn_request(create=CREATE, token_ids=PROMPT))
    await eventually(lambda: called(worker, "OpenSession"))
    await leave(opening, "Turn")
    worker.flowing.set()
    await eventually(lambda: gone(stack, worker))
    worker.late.append(late := asyncio.Event())
    appending = client.turning(turn_request(create=CREATE, token_ids=PROMPT))
    await eventually(lambda: called(worker, "Append"))
    await leave(appending, "Turn")
    late.set()
    await eventually(lambda: gone(stack, worker))


async def test_a_client_that_leaves_later_may_come_back(client: Client, worker: FakeWorker) -> None:
    request = turn_request(create=CREATE, token_ids=PROMPT, max_tokens=100_000, op_id="o")
    call = client.turning(request)
    session, _, *generated = await read(call, 5)
    call.cancel()
    seen = [each.generated.token_id for each in generated]
    again = client.generating(session.session.session_id, 100_000, op_id="o", resume_token_ids=seen)
    assert (await again.read()).token_id == 100 + 3 + len(seen)
    again.cancel()


async def test_a_repetition_finds_the_session(stack: Stack, client: Client, worker: FakeWorker) -> None:
    created = await client.create(**CREATE)
    request = turn_request(create=CREATE, token_ids=PROMPT, op_id="o")
    first = await client.turn(request)
    assert first.session.session_id == created.session_id
    for router in (client, await stack.router()):
        again = await router.turn(request)
        assert again.session.session_id == created.session_id
        assert (again.session.history_length, again.appended.history_length) == (0, 3)
        assert again.token_ids == first.token_ids
    assert worker.lanes[created.session_id].token_ids == [*PROMPT, *expected(3, 7)]
    assert (worker.calls["OpenSession"], worker.calls["Append"]) == (1, 1)
    await refused(client.turn(turn_request(create=CREATE | {"window": 8}, token_ids=PROMPT)), InvalidField, "session")


async def test_a_session_that_a_repetition_has_found_outlives_the_first(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    other_router = await stack.router()
    worker.late += [first_appends := asyncio.Event(), again_appends := asyncio.Event()]
    request = turn_request(create=CREATE, token_ids=PROMPT, op_id="o")
    first = client.turning(request)
    await eventually(lambda: called(worker, "Append"))
    again = asyncio.create_task(other_router.turn(request))
    await eventually(lambda: called(worker, "Stop"))
    first_appends.set()
    await eventually(lambda: called(worker, "Append", 2))
    first.cancel()
    again_appends.set()
    turned = await again
    assert turned.token_ids == expected(3, 7)
    await asyncio.sleep(0.3)
    assert worker.lanes[turned.session.session_id].token_ids == [*PROMPT, *expected(3, 7)]


@pytest.mark.parametrize("is_fork", [False, True])
async def test_what_a_first_attempt_closes_meanwhile_is_made_anew(
    client: Client, worker: FakeWorker, source: str, monkeypatch: pytest.MonkeyPatch, is_fork: bool
) -> None:
    """A repetition finds its session; then that is closed, since the first one's client has gone."""
    if is_fork:
        request = turn_request(source, [9], boundary=5, request_id="r", op_id="o")
    else:
        request = turn_request(create=CREATE, token_ids=PROMPT, op_id="o")
    first = await client.turn(request)
    begin, closed = Operations._begin, list[str]()

    async def late(self: Operations, operation: Operation, intent: Intent) -> None:
        if not closed:
            closed.append(operation.record.session_id)
            await client.close(operation.record.session_id)
        await begin(self, operation, intent)

    monkeypatch.setattr(Operations, "_begin", late)
    again = await client.turn(request)
    assert closed == [first.session.session_id]
    assert again.session.session_id not in (source, *closed)
    assert again.token_ids == first.token_ids
    closed.clear()
    await refused(client.turn(turn_request(again.session.session_id, [1])), SessionNotFound, "session")


async def test_it_waits_for_a_lane(stack: Stack) -> None:
    client = await stack.router(admission="queue")
    worker = await stack.worker(client, num_lanes=1)
    first = await client.session()
    waiting = asyncio.create_task(client.turn(turn_request(create={}, token_ids=PROMPT)))
    leaving = client.turning(turn_request(create={}, token_ids=PROMPT))
    await eventually(lambda: are_waiting(stack, 2))
    leaving.cancel()
    await eventually(lambda: are_waiting(stack, 1))
    await client.close(first)
    assert (await waiting).session.session_id in worker.lanes


async def are_waiting(stack: Stack, number: int) -> bool:
    return int(await stack.redis.zcard("kakeya:{tiny}:queue")) == number


async def test_nobody_waits_for_redis_to_take_a_session_back(
    stack: Stack, client: Client, worker: FakeWorker, lose: Lose
) -> None:
    lose("extend_journal")
    await refused(client.turn(turn_request(create=CREATE, token_ids=PROMPT)), StoreUnavailable, "append")
    await eventually(lambda: gone(stack, worker))


# At a place


async def test_at_its_end_the_session_itself_goes_on(client: Client, worker: FakeWorker, source: str) -> None:
    turned = await client.turn(turn_request(source, [9], boundary=7, request_id="r"))
    assert turned.session.session_id == source
    assert (turned.session.history_length, turned.token_ids) == (7, expected(8, 12))


async def test_an_empty_session_goes_on_at_0(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    assert (await client.turn(turn_request(session_id, [9], boundary=0))).session.session_id == session_id
    await refused(client.turn(turn_request(session_id, [9], boundary=0)), EmptyHistory, "session")


async def test_elsewhere_a_fork_goes_on(client: Client, worker: FakeWorker) -> None:
    named = {"client_label": "mine", "ttl_seconds": 77, "sink": 2, "window": 9}
    source = (await client.turn(turn_request(create=named, token_ids=PROMPT))).session.session_id
    turned = await client.turn(turn_request(source, [9], boundary=5))
    fork = turned.session.session_id
    assert fork != source
    assert (turned.session.history_length, turned.session.window) == (5, 9)
    assert turned.token_ids == expected(6, 10)
    assert worker.lanes[fork].token_ids == [*PROMPT, *expected(3, 5), 9, *expected(6, 10)]
    assert worker.lanes[source].token_ids == [*PROMPT, *expected(3, 7)]
    listed = (await answer(client.runtime.ListSessions(api.ListSessionsRequest()))).sessions
    assert {each.client_label for each in listed} == {"mine"}


async def test_beside_one_that_runs_a_fork_goes_on(
    stack: Stack, client: Client, worker: FakeWorker, source: str
) -> None:
    running = client.turning(turn_request(source, [8], 100_000, boundary=7))
    session, *_ = await read(running, 3)
    assert session.session.session_id == source
    turned = await client.turn(turn_request(source, [9], boundary=7))
    assert turned.session.session_id != source
    assert worker.lanes[turned.session.session_id].token_ids == [*PROMPT, *expected(3, 7), 9, *expected(8, 12)]
    running.cancel()
    record = await record_of(stack, turned.session.session_id)
    assert int(record["ttl_ms"]) == 1_800_000


@pytest.mark.parametrize("num_turns", [2, 3])
async def test_of_several_at_one_place_one_takes_the_session(
    client: Client, worker: FakeWorker, source: str, num_turns: int
) -> None:
    requests = [turn_request(source, [900 + number], boundary=7) for number in range(num_turns)]
    turns = await asyncio.gather(*map(client.turn, requests))
    sessions = [turned.session.session_id for turned in turns]
    assert sessions.count(source) == 1
    assert len(set(sessions)) == num_turns
    for number, session_id in enumerate(sessions):
        assert worker.lanes[session_id].token_ids == [*PROMPT, *expected(3, 7), 900 + number, *expected(8, 12)]


async def test_of_a_parked_session_at_its_end_the_session_itself_goes_on(
    client: Client, worker: FakeWorker, source: str
) -> None:
    await client.park(source)
    assert (await client.turn(turn_request(source, [9], boundary=7))).session.session_id == source


async def test_one_that_expects_a_length_takes_the_session_or_nothing(
    stack: Stack, client: Client, worker: FakeWorker, source: str
) -> None:
    for elsewhere in (5, 8):
        request = turn_request(source, [9], expected=elsewhere)
        await refused(client.turn(request), HistoryLengthMismatch, "session", history_length="7")
    other_router = await stack.router()
    request = turn_request(source, [9], expected=7, op_id="o")
    first, again = await client.turn(request), await other_router.turn(request)
    assert first.session.session_id == again.session.session_id == source
    assert first.token_ids == again.token_ids == expected(8, 12)
    assert worker.lanes[source].token_ids == [*PROMPT, *expected(3, 7), 9, *expected(8, 12)]
    await refused(client.turn(turn_request(source, [9], expected=7)), HistoryLengthMismatch, "session")


async def test_one_that_expects_a_length_is_refused_beside_one_that_runs(
    client: Client, worker: FakeWorker, source: str
) -> None:
    running = client.turning(turn_request(source, [8], 100_000, expected=7))
    await read(running, 3)
    await refused(client.turn(turn_request(source, [9], expected=7)), OperationRunning, "session")
    running.cancel()
    assert list(worker.lanes) == [source]


async def test_a_boundary_and_an_expected_length_are_one_too_many(client: Client, source: str) -> None:
    await refused(client.turn(turn_request(source, [9], boundary=7, expected=7)), InvalidField, "session")


@pytest.mark.parametrize("boundary", [8, 2**64 - 1])
async def test_beyond_its_end_there_is_no_place(client: Client, worker: FakeWorker, source: str, boundary: int) -> None:
    await refused(client.turn(turn_request(source, [9], boundary=boundary)), BoundaryNotReachable, "session")


async def test_what_is_forgotten_is_no_place(stack: Stack) -> None:
    client = await stack.router(**FORGETFUL)
    await stack.worker(client)
    source = await client.session()
    for token_id in range(6):
        await client.append(source, [token_id])
    await refused(client.turn(turn_request(source, [9], boundary=2)), BoundaryNotReachable, "session")


async def test_a_repetition_finds_the_fork_although_its_source_is_idle_by_now(
    client: Client, worker: FakeWorker, source: str
) -> None:
    worker.flowing.clear()
    running = client.turning(turn_request(source, [8], boundary=7))
    await eventually(lambda: called(worker, "Append", 2))
    request = turn_request(source, [9], boundary=7, request_id="r", op_id="o")
    first = asyncio.create_task(client.turn(request))
    await eventually(lambda: called(worker, "OpenSession", 2))
    worker.flowing.set()
    turned = await first
    fork = turned.session.session_id
    assert fork != source
    await answer(read(running, 9))
    again = await client.turn(request)
    assert (again.session.session_id, again.token_ids) == (fork, turned.token_ids)
    assert len(worker.lanes) == 2


async def test_a_repetition_goes_on_in_the_session_that_it_has_taken(
    client: Client, worker: FakeWorker, source: str
) -> None:
    request = turn_request(source, [9], boundary=7, request_id="r", op_id="o")
    first, again = await client.turn(request), await client.turn(request)
    assert again.session.session_id == first.session.session_id == source
    assert again.token_ids == first.token_ids
    assert list(worker.lanes) == [source]


async def test_a_fork_that_fails_leaves_nothing(client: Client, worker: FakeWorker, source: str) -> None:
    worker.failures["Append"] = [Internal("a bug")]
    await refused(client.turn(turn_request(source, [9], boundary=5)), NoWorker, "session")
    await eventually(lambda: only(worker, source))


async def only(worker: FakeWorker, session_id: str) -> bool:
    return list(worker.lanes) == [session_id]


async def test_a_source_that_is_lost_or_failed_has_no_places(stack: Stack, client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, PROMPT)
    worker.failures["Append"] = [InvariantViolated("lane length", metadata={"invariant": "inv1"})]
    await refused(client.turn(turn_request(session_id, [9], boundary=3)), InvariantViolated, "append")
    await refused(client.turn(turn_request(session_id, [9], boundary=3)), InvariantViolated, "session")
    forgetful = await stack.router(**FORGETFUL)
    lost = await forgetful.session()
    for token_id in range(4):
        await forgetful.append(lost, [token_id])
    await be_lost(worker)
    with pytest.raises(WorkerLost):
        await eventually(lambda: not_lost(forgetful, lost))


async def not_lost(client: Client, session_id: str) -> None:
    try:
        await client.turn(turn_request(session_id, [9], boundary=4))
    except (OperationRunning, NoWorker):
        return


async def test_a_place_in_somebody_elses_session_is_none(redis_url: str) -> None:
    async with keyed_on(redis_url) as keyed:
        await keyed.worker()
        theirs, ours = await keyed.tenant("theirs"), await keyed.tenant("ours")
        session_id = (await theirs.turn(turn_request(create={}, token_ids=PROMPT))).session.session_id
        for place in ({}, {"boundary": 5}, {"boundary": 7, "request_id": "r"}):
            await refused(ours.turn(turn_request(session_id, [9], **place)), SessionNotFound, "session")
        assert (await theirs.turn(turn_request(session_id, [9]))).appended.history_length == 8


# It closes the session


async def test_it_closes_the_session(stack: Stack, client: Client, worker: FakeWorker, source: str) -> None:
    turned = await client.turn(turn_request(create={}, token_ids=PROMPT, close=True))
    assert turned.done.history_length == 7
    assert turned.session.session_id not in worker.lanes
    fork = await client.turn(turn_request(source, [9], boundary=5, close=True))
    assert fork.session.session_id not in worker.lanes
    assert list(worker.lanes) == [source]
    await client.turn(turn_request(source, [9], close=True))
    assert await gone(stack, worker)
    assert not worker.calls["CloseSession"], "the worker has, with the answers"


@pytest.mark.parametrize("create", [{}, {"ephemeral": True}])
async def test_a_cancel_closes_it(stack: Stack, client: Client, worker: FakeWorker, create: dict[str, Any]) -> None:
    call = client.turning(turn_request(create=create, token_ids=PROMPT, max_tokens=100_000, close=not create))
    await read(call, 4)
    call.cancel()
    await eventually(lambda: nothing_left(stack, client))
    assert not worker.lanes


@pytest.mark.parametrize("how", ["close", "ephemeral"])
async def test_an_error_closes_it(stack: Stack, client: Client, worker: FakeWorker, how: str) -> None:
    worker.failures["Generate"] = [Internal("a bug")]
    create = {"ephemeral": True} if how == "ephemeral" else {}
    request = turn_request(create=create, token_ids=PROMPT, close=how == "close")
    await refused(client.turn(request), Internal, "generate")
    await eventually(lambda: nothing_left(stack, client))
    assert not worker.lanes


async def test_a_deadline_closes_it(stack: Stack, client: Client, worker: FakeWorker) -> None:
    call = client.turning(turn_request(create={}, token_ids=PROMPT, max_tokens=1_000_000, close=True), timeout=0.5)
    with pytest.raises(grpc.aio.AioRpcError):
        [event async for event in call]
    await eventually(lambda: gone(stack, worker))


async def test_a_violated_invariant_closes_it(stack: Stack, client: Client, worker: FakeWorker) -> None:
    worker.failures["Generate"] = [InvariantViolated("lane length", metadata={"invariant": "inv1"})]
    request = turn_request(create={}, token_ids=PROMPT, close=True)
    await refused(client.turn(request), InvariantViolated, "generate")
    await eventually(lambda: gone(stack, worker))


async def test_a_lost_worker_closes_it(stack: Stack, client: Client) -> None:
    """Where no other one has a lane for the rest of the answer."""
    worker = await stack.worker(client)
    call = client.turning(turn_request(create={}, token_ids=PROMPT, max_tokens=1_000_000, close=True))
    await read(call, 5)
    await be_lost(worker)
    with pytest.raises((NoWorker, NoCapacity)):
        await answer(drained(call))
    await eventually(lambda: nothing_left_at_all(stack))


async def nothing_left_at_all(stack: Stack) -> bool:
    return not {key for key in await stack.session_keys() if ":lost" not in key and ":queue" not in key}


async def test_what_is_refused_closes_nothing(client: Client, worker: FakeWorker, source: str) -> None:
    worker.flowing.clear()
    running = asyncio.create_task(client.turn(turn_request(source, [9])))
    await eventually(lambda: called(worker, "Append", 2))
    await refused(client.turn(turn_request(source, [9], close=True)), OperationRunning, "session")
    worker.flowing.set()
    await running
    await refused(client.turn(turn_request(source, [999_999], close=True)), Exception, "append")  # type: ignore[arg-type]
    assert (await client.info(source)).history_length == 12


async def test_a_router_that_shuts_down_keeps_an_ephemeral_one_and_closes_what_is_to_be_closed(
    stack: Stack, worker: FakeWorker, client: Client
) -> None:
    leaving = await stack.router(shutdown_grace_seconds=0.1)
    calls = {
        how: leaving.turning(turn_request(create=create, token_ids=PROMPT, max_tokens=1_000_000, close=how == "close"))
        for how, create in {"close": {}, "ephemeral": {"ephemeral": True}}.items()
    }
    sessions = {how: (await read(call, 4))[0].session.session_id for how, call in calls.items()}
    await stack.stop_routers()
    again = await stack.router()
    await eventually(lambda: idle(again, sessions["ephemeral"]))
    with pytest.raises(SessionNotFound):
        await again.info(sessions["close"])


async def test_an_end_that_redis_does_not_take_closes_it_later(
    stack: Stack, client: Client, worker: FakeWorker, lose: Lose
) -> None:
    lose("end_operation")
    await refused(client.turn(turn_request(create={}, token_ids=PROMPT, close=True)), StoreUnavailable, "generate")
    await eventually(lambda: gone(stack, worker))


def test_events_come_in_their_order() -> None:
    with pytest.raises(AssertionError):
        Turned([api.TurnResponse(appended=api.AppendTokensResponse()), api.TurnResponse()])
