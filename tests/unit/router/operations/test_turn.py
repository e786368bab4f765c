"""Turn: append and generate in one operation, and the same turn again wherever it was cut."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from kakeya_router.contract.turns import TurnRequest
from kakeya_router.contract.validation import RequestLimits
from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.session_record import Claim, SessionId, SessionRecord
from kakeya_shared.contract.features import MASKED_ENDS
from kakeya_shared.errors.tree import (
    AppendTooLong,
    EmptyHistory,
    HistoryFull,
    HistoryLengthMismatch,
    InvalidField,
    KakeyaError,
    NoWorker,
    OperationRunning,
    OperationStopped,
    QuotaExceeded,
    SessionNotFound,
    SnapshotStoreUnavailable,
    StoreUnavailable,
    TokenOutOfVocabulary,
)
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import BYTES_PER_TOKEN, EOS, SINK, VOCAB_SIZE, WINDOW, FakeWorker, Lane
from tests.unit.router.keyed import keyed_on
from tests.unit.router.lapses import die
from tests.unit.router.operations.test_recovery import Pair, expected, files, pair
from tests.unit.router.operations.test_takeover import OPERATION
from tests.unit.router.session_stores import SessionStores
from tests.unit.router.stack import Client, Stack, Turned, eventually, turn_request
from tests.unit.router.workers.test_lost_answers import Lose, lose

__all__ = ["files", "lose", "pair"]  # fixtures

SESSION = "kakeya:{{tiny}}:session:{}"
OP: dict[str, Any] = {"op_id": "the-turn", "seed": 5}
LIMITS = RequestLimits(1000, 1000, 0, 100)


@pytest.fixture
async def session_id(client: Client, worker: FakeWorker) -> str:
    """With three tokens."""
    session_id = await client.session()
    await client.append(session_id, [1, 2, 3])
    return session_id


async def test_it_appends_and_generates(stack: Stack, client: Client, worker: FakeWorker, session_id: str) -> None:
    call = client.turning(turn_request(session_id, [4, 5], 3))
    metadata = dict(await call.initial_metadata())
    turned = Turned([event async for event in call])
    assert (turned.session.session_id, turned.session.history_length) == (session_id, 3)
    assert turned.session.vocab_size == VOCAB_SIZE
    assert (turned.appended.history_length, turned.appended.kv_live_bytes) == (5, 5 * BYTES_PER_TOKEN)
    assert turned.appended.prefill_duration_seconds == worker.prefill_seconds
    assert turned.token_ids == expected(5, 8)
    assert (turned.done.history_length, turned.done.generated_token_count) == (8, 3)
    assert turned.done.op_id == metadata["kakeya-op-id"]
    assert worker.lanes[session_id].token_ids == [1, 2, 3, 4, 5, *expected(5, 8)]
    info = await client.info(session_id)
    assert (info.history_length, list(info.boundaries)) == (8, [8])
    assert (worker.calls["Append"], worker.calls["Generate"]) == (2, 1)


async def test_it_is_what_the_single_calls_are(client: Client, worker: FakeWorker) -> None:
    one, other = await client.session(), await client.session()
    for num_tokens in (30, 1, 25):
        turned = await client.turn(turn_request(one, range(num_tokens), 5, seed=1, logprobs=2))
        appended = await client.append(other, range(num_tokens))
        generated = await client.generate(other, 5, seed=1, logprobs=2)
        assert turned.appended == appended
        for each in (turned.generated[-1], generated[-1]):
            for field in ("op_id", "total_duration_seconds"):
                each.done.ClearField(field)
        assert turned.generated == generated
    assert generated[0].truncated.dropped_token_count == 66 - SINK - WINDOW
    assert (await client.info(one)).boundaries == (await client.info(other)).boundaries


async def test_without_tokens_it_only_generates(client: Client, worker: FakeWorker, session_id: str) -> None:
    turned = await client.turn(turn_request(session_id))
    assert (turned.appended.history_length, turned.appended.kv_live_bytes) == (3, 3 * BYTES_PER_TOKEN)
    assert turned.token_ids == expected(3, 7)
    assert worker.calls["Append"] == 1


async def refused(call: Any, error: type[KakeyaError], part: str, **metadata: str) -> None:
    with pytest.raises(error) as raised:
        await call
    assert metadata.items() <= raised.value.metadata.items()
    assert raised.value.metadata["part"] == part


@pytest.mark.parametrize(
    ("request_", "error", "part", "metadata"),
    [
        (api.TurnRequest(generate=api.GenerateRequest(max_tokens=1)), InvalidField, "session", {"field": "where"}),
        (turn_request("nobody.knows", [1]), SessionNotFound, "session", {}),
        (turn_request(request_id="r", token_ids=[1]), InvalidField, "session", {"field": "request_id"}),
        (turn_request(request_id="r" * 129, boundary=1), InvalidField, "session", {"field": "request_id"}),
        (turn_request(create={"window": 0}, token_ids=[1]), InvalidField, "session", {"field": "window"}),
        (turn_request(create={}), EmptyHistory, "append", {}),
        (turn_request(create={}, token_ids=range(11)), AppendTooLong, "append", {}),
        (turn_request(token_ids=[VOCAB_SIZE]), TokenOutOfVocabulary, "append", {"field": "spans"}),
        (turn_request(create={}, token_ids=[VOCAB_SIZE]), TokenOutOfVocabulary, "append", {"field": "spans"}),
        (turn_request(token_ids=[1], max_tokens=0), InvalidField, "generate", {"field": "max_tokens"}),
        (turn_request(token_ids=[1], logit_bias={VOCAB_SIZE: 1}), TokenOutOfVocabulary, "generate", {}),
        (turn_request(create={}, token_ids=[1], logit_bias={VOCAB_SIZE: 1}), TokenOutOfVocabulary, "generate", {}),
        (turn_request(token_ids=[1], ignore_eos=True), NoWorker, "session", {"feature": MASKED_ENDS}),
        (turn_request(create={}, token_ids=[1], ignore_eos=True), NoWorker, "session", {"feature": MASKED_ENDS}),
        (turn_request(create={"model": "Other"}, token_ids=[1]), NoWorker, "session", {}),
        *(
            (turn_request(token_ids=[1], **field), InvalidField, "generate", {"field": f"generate.{next(iter(field))}"})
            for field in (
                {"expected_history_length": 0},
                {"resume_token_ids": [1], "op_id": "o"},
            )
        ),
    ],
)
async def test_what_cannot_be_is_refused_before_any_of_it_is_done(
    stack: Stack,
    worker: FakeWorker,
    session_id: str,
    request_: api.TurnRequest,
    error: type[KakeyaError],
    part: str,
    metadata: dict[str, str],
) -> None:
    client = await stack.router(max_append_tokens=10)
    if request_.HasField("session") and not request_.session.session_id:
        request_.session.session_id = session_id
    before = await client.info(session_id), await stack.session_keys(), dict(worker.calls)
    await refused(client.turn(request_), error, part, **metadata)
    after = await client.info(session_id), await stack.session_keys(), dict(worker.calls)
    for info, _, _ in (before, after):
        info.ClearField("idle_seconds")
    assert after == before


async def test_what_does_not_fit_is_refused_before_any_of_it_is_done(stack: Stack, worker: FakeWorker) -> None:
    client = await stack.router(max_history_tokens=30)
    refuses = {"on_overflow": api.OVERFLOW_POLICY_REFUSE}
    session_id = await client.session(**refuses)
    await client.append(session_id, range(15))
    await refused(client.turn(turn_request(session_id, range(6))), HistoryFull, "append", room="5")
    other = await client.session()
    await client.append(other, range(28))
    await refused(client.turn(turn_request(other, range(3))), HistoryFull, "append", room="2")
    await refused(client.turn(turn_request(other, range(2))), HistoryFull, "generate", room="0")
    keys = await stack.session_keys()
    await refused(client.turn(turn_request(create={}, token_ids=range(31))), HistoryFull, "append")
    await refused(client.turn(turn_request(create={}, token_ids=range(30))), HistoryFull, "generate")
    await refused(client.turn(turn_request(create=refuses, token_ids=range(21))), HistoryFull, "append", room="20")
    assert await stack.session_keys() == keys
    assert len(worker.lanes) == 2
    assert (await client.turn(turn_request(other, [1], 9))).done.stop_reason == api.STOP_REASON_TRUNCATED
    assert worker.calls["Append"] == 3


async def test_a_session_without_a_history_has_none_to_generate_from(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await refused(client.turn(turn_request(session_id)), EmptyHistory, "append")
    assert (await client.append(session_id, [1])).history_length == 1


async def test_one_at_a_time_where_no_boundary_is_given(client: Client, worker: FakeWorker, session_id: str) -> None:
    worker.flowing.clear()
    running = asyncio.create_task(client.turn(turn_request(session_id, [4])))
    await eventually(lambda: called(worker, "Append", 2))
    await refused(client.turn(turn_request(session_id, [5])), OperationRunning, "session")
    worker.flowing.set()
    assert (await running).token_ids == expected(4, 8)


async def called(worker: FakeWorker, method: str, times: int = 1) -> bool:
    return worker.calls[method] >= times


async def test_errors_of_the_worker_name_their_part(client: Client, worker: FakeWorker, session_id: str) -> None:
    for method, part in (("Append", "append"), ("Generate", "generate")):
        worker.failures[method] = [InvalidField("not that", metadata={"field": "x"})]
        await refused(client.turn(turn_request(session_id, [4])), InvalidField, part, field="x")


async def test_tokens_are_charged_once(redis_url: str) -> None:
    async with keyed_on(redis_url, tenant_tokens_per_minute=10) as keyed:
        await keyed.worker()
        client = await keyed.tenant("acme")
        session_id = (await client.turn(turn_request(create={}, token_ids=range(5), max_tokens=4))).session.session_id
        await client.turn(turn_request(session_id, [1], 1))
        await refused(client.turn(turn_request(session_id, [1], 1)), QuotaExceeded, "session")


async def test_a_journal_that_is_full_takes_none_of_it(stack: Stack, pair: Pair) -> None:
    client = await stack.router(max_append_tokens=4, journal_tokens=4)
    session_id = await client.session()
    for each in pair.workers:
        each.failures["WriteSnapshot"] = [SnapshotStoreUnavailable("down")] * 1000
    await client.append(session_id, range(4))
    await refused(client.turn(turn_request(session_id, [1])), SnapshotStoreUnavailable, "append")
    assert (await client.info(session_id)).history_length == 4


# Interruptions


async def test_its_worker_dies_in_the_append(stack: Stack, client: Client, pair: Pair) -> None:
    session_id = await client.session()
    dying = pair.of(session_id)
    dying.flowing.clear()
    running = asyncio.create_task(client.turn(turn_request(session_id, range(5))))
    await eventually(lambda: called(dying, "Append"))
    await die(dying)
    turned = await running
    assert turned.token_ids == expected(5, 9)
    assert pair.of(session_id).lanes[session_id].token_ids == [*range(5), *expected(5, 9)]


async def test_its_worker_dies_in_the_stream(stack: Stack, client: Client, pair: Pair) -> None:
    session_id = await client.session()
    dying = pair.of(session_id)
    dying.pause_in = 4
    call = client.turning(turn_request(session_id, range(5), 300))
    events = [await call.read() for _ in range(6)]
    await die(dying)
    while (event := await call.read()) is not grpc.aio.EOF:
        events.append(event)
    assert Turned(events).token_ids == expected(5, 305)


async def test_a_cancel_keeps_what_is_committed(client: Client, worker: FakeWorker, session_id: str) -> None:
    call = client.turning(turn_request(session_id, [4], 100_000))
    for _ in range(5):
        await call.read()
    call.cancel()
    await eventually(lambda: idle(client, session_id))
    info = await client.info(session_id)
    assert 4 < info.history_length < 100_004
    assert info.history_length == len(worker.lanes[session_id].token_ids)


async def idle(client: Client, session_id: str) -> bool:
    return (await client.info(session_id)).idle_seconds > 0


async def test_a_deadline_ends_it(client: Client, worker: FakeWorker, session_id: str) -> None:
    worker.flowing.clear()
    call = client.turning(turn_request(session_id, [4]), timeout=0.3)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        [event async for event in call]
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    worker.flowing.set()
    await eventually(lambda: idle(client, session_id))
    assert (await client.info(session_id)).history_length == 4, "what is journaled is in the history"


# The same turn again


class Attempts:
    """One turn in a session with three tokens, tried at two routers; `begun` is what the first has left in Redis."""

    def __init__(self, stores: SessionStores, stack: Stack, worker: FakeWorker, session_id: str) -> None:
        self.request = turn_request(session_id, [4, 5], 3, **OP)
        self._stores, self._stack, self._worker, self._session_id = stores, stack, worker, session_id

    async def record(self) -> SessionRecord:
        record = await self._stores.get(SessionId(self._session_id))
        assert record is not None
        return record

    async def begin(self, *, journal: bool = False, prefilled: int = 0) -> None:
        """As far as a router has come that vanished then."""
        asked, record = TurnRequest.of(self.request, LIMITS), await self.record()
        began = await self._stores.begin_operation(record, Claim("theirs"), asked.intent(None))
        if journal:
            await self._stores.extend_journal(began.record, Claim("theirs"), 3, asked.token_ids, 1000)
        self._worker.lanes[self._session_id].token_ids += asked.token_ids[:prefilled]

    def check(self, turned: Turned) -> None:
        """Whether it is all there, and once."""
        assert turned.session.history_length == 3
        assert turned.appended.history_length == 5
        assert turned.token_ids == expected(5, 8)
        assert turned.done.seed == 5
        assert self._worker.lanes[self._session_id].token_ids == [1, 2, 3, 4, 5, *expected(5, 8)]


@pytest.fixture
async def attempts(
    redis_url: str, stack: Stack, client: Client, worker: FakeWorker, session_id: str
) -> AsyncIterator[Attempts]:
    redis = RedisConnection(redis_url)
    yield Attempts(SessionStores(redis), stack, worker, session_id)
    await redis.aclose()


@pytest.mark.parametrize(
    "left",
    [
        {},
        {"journal": True},
        {"journal": True, "prefilled": 1},
        {"journal": True, "prefilled": 2},
    ],
    ids=["claimed", "journaled", "in the prefill", "prefilled"],
)
async def test_after_its_router_vanished_before_the_answer(
    client: Client, attempts: Attempts, left: dict[str, Any]
) -> None:
    await attempts.begin(**left)
    attempts.check(await client.turn(attempts.request))
    info = await client.info(attempts.request.session.session_id)
    assert (info.history_length, list(info.boundaries)) == (8, [8])


async def test_another_call_ends_what_it_left(
    stack: Stack, client: Client, attempts: Attempts, worker: FakeWorker
) -> None:
    await attempts.begin(journal=True, prefilled=1)
    session_id = attempts.request.session.session_id
    await stack.redis.hset(OPERATION.format(session_id), "lease_until_ms", 1)
    appended = await eventually(lambda: unless_busy(client.append(session_id, [9])))
    assert appended.history_length == 6
    assert worker.lanes[session_id].token_ids == [1, 2, 3, 4, 5, 9]
    assert list((await client.info(session_id)).boundaries) == []


async def unless_busy(call: Any) -> Any:
    try:
        return await call
    except OperationRunning:
        return None


@pytest.mark.parametrize("num_steps", range(5))
async def test_while_it_still_runs_at_another_router(
    stack: Stack, client: Client, worker: FakeWorker, attempts: Attempts, num_steps: int
) -> None:
    """Two steps append, three generate."""
    other_router, steps = await stack.router(), iter(range(num_steps))
    go_on = asyncio.Event()

    async def step(lane: Lane) -> None:
        if next(steps, None) is None:
            while not go_on.is_set() and lane.end is None:
                await asyncio.sleep(0.002)
        if lane.end is not None:
            raise lane.end

    worker._step = step  # type: ignore[method-assign]
    first = asyncio.create_task(client.turn(attempts.request))
    await eventually(lambda: has_length(worker, attempts, 3 + num_steps))
    await eventually(lambda: called(worker, *(("Append", 2) if num_steps < 2 else ("Generate", 1))))
    again = asyncio.create_task(other_router.turn(attempts.request))
    await eventually(lambda: called(worker, "Stop"))
    go_on.set()
    attempts.check(await again)
    with pytest.raises(OperationStopped) as raised:
        await first
    assert raised.value.metadata["part"] == ("append" if num_steps < 2 else "generate")


async def has_length(worker: FakeWorker, attempts: Attempts, length: int) -> bool:
    return len(worker.lanes[attempts.request.session.session_id].token_ids) == length


@pytest.mark.parametrize("times", [1, 2])
async def test_after_it_has_ended(client: Client, worker: FakeWorker, attempts: Attempts, times: int) -> None:
    attempts.check(await client.turn(attempts.request))
    for _ in range(times):
        again = await client.turn(attempts.request)
        attempts.check(again)
        assert again.appended.kv_live_bytes == 8 * BYTES_PER_TOKEN
        assert [(each.start, each.end) for each in again.appended.retained] == [(0, 5)]
    assert worker.calls["Append"] == 2


async def test_what_it_had_kept_is_told_as_it_was(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    request = turn_request(session_id, range(30), 5, **OP)
    first, again = await client.turn(request), await client.turn(request)
    assert again.appended.retained == first.appended.retained
    assert again.generated[0] == first.generated[0]  # truncated
    assert again.token_ids == first.token_ids


async def test_generate_goes_on_with_it_once_it_has_appended(client: Client, attempts: Attempts) -> None:
    session_id, op_id = attempts.request.session.session_id, attempts.request.generate.op_id
    await attempts.begin(journal=True, prefilled=2)
    responses = await client.generate(session_id, 3, op_id=op_id, resume_token_ids=expected(5, 6))
    assert [each.token_id for each in responses[:-1]] == expected(6, 8)
    assert responses[-1].done.seed == 5
    attempts.check(await client.turn(attempts.request))


async def test_generate_does_not_go_on_with_one_that_has_not_appended(client: Client, attempts: Attempts) -> None:
    session_id, op_id = attempts.request.session.session_id, attempts.request.generate.op_id
    await attempts.begin()
    with pytest.raises(HistoryLengthMismatch):
        await client.generate(session_id, 3, op_id=op_id)
    attempts.check(await client.turn(attempts.request))


@pytest.mark.parametrize("journal", [False, True])
@pytest.mark.parametrize("token_ids", [[4], [4, 6], [4, 5, 6], []])
async def test_with_other_tokens_it_is_another_one(
    client: Client, worker: FakeWorker, attempts: Attempts, journal: bool, token_ids: list[int]
) -> None:
    await attempts.begin(journal=journal)
    other = turn_request(attempts.request.session.session_id, token_ids, 3, **OP)
    if token_ids == [4, 6] and not journal:
        return  # nothing says which it had
    if not token_ids and journal:
        turned = await client.turn(other)  # what is left of it is to generate
        assert turned.token_ids == expected(5, 8)
        return
    await refused(client.turn(other), InvalidField, "append", field="spans")
    attempts.check(await client.turn(attempts.request))


async def test_after_another_operation_it_is_a_new_one(client: Client, worker: FakeWorker, attempts: Attempts) -> None:
    session_id = attempts.request.session.session_id
    await client.turn(attempts.request)
    await client.append(session_id, [9])
    assert (await client.turn(attempts.request)).session.history_length == 9


@pytest.mark.parametrize("script", ["begin_operation", "extend_journal", "end_operation"])
async def test_an_answer_of_redis_is_lost(
    client: Client, worker: FakeWorker, attempts: Attempts, lose: Lose, script: str
) -> None:
    lose(script)
    with pytest.raises(StoreUnavailable) as raised:
        await client.turn(attempts.request)
    parts = {"begin_operation": "session", "extend_journal": "append", "end_operation": "generate"}
    assert raised.value.metadata["part"] == parts[script]
    attempts.check(await eventually(lambda: unless_busy(client.turn(attempts.request))))


async def test_eos_ends_it(client: Client, worker: FakeWorker) -> None:
    worker.eos_after = 6
    turned = await client.turn(turn_request(create={"eos_token_ids": [EOS]}, token_ids=[1, 2, 3, 4], max_tokens=9))
    assert turned.token_ids == [104, 105, EOS]
    assert turned.done.stop_reason == api.STOP_REASON_EOS
