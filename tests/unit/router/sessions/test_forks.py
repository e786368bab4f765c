"""Sessions that branch off from others: what they have at once, which worker takes them, and what is no source."""

import asyncio
from typing import Any

import pytest

from kakeya_router.store.sessions.creation_store import CreationStore
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers.fleet import Fleet
from kakeya_shared.errors.tree import (
    BoundaryNotReachable,
    EmptyHistory,
    HistoryLengthMismatch,
    InvalidField,
    InvariantViolated,
    NoCapacity,
    NoWorker,
    OperationRunning,
    QueueTimedOut,
    QuotaExceeded,
    SessionNotFound,
    WorkerLost,
)
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import verifier_pb2 as worker_api
from tests.unit.router.access.test_foreign_sessions import _everything
from tests.unit.router.fake_worker import BYTES_PER_TOKEN, EOS, FINGERPRINT, LANE_BYTES, SINK, WINDOW, FakeWorker
from tests.unit.router.keyed import keyed_on
from tests.unit.router.lanes.test_queue import QUEUE, nothing, stand, waiting
from tests.unit.router.lapses import expire
from tests.unit.router.operations.test_takeover import _leave_behind
from tests.unit.router.stack import FORGETFUL, Client, Stack, eventually

SESSION = "kakeya:{{tiny}}:session:{}"


def fork_of(session_id: str, **fields: Any) -> dict[str, Any]:
    return {"fork_from": api.ForkPoint(session_id=session_id, **fields)}


async def prepared(client: Client, num_tokens: int = 10, **fields: Any) -> str:
    """A session that others may branch off from."""
    session_id = await client.session(**fields)
    await client.append(session_id, range(num_tokens))
    return session_id


async def only(stack: Stack, client: Client, session_id: str) -> None:
    """Nothing is left of others, in Redis, in the ledger and on the worker."""

    async def is_so() -> bool:
        ledger = (await client.workers())["worker-a"]
        left = {key.rsplit(":", 1)[-1] for key in await stack.session_keys() if ":session:" in key}
        return (left, ledger.num_sessions, ledger.reserved_bytes) == ({session_id}, 1, LANE_BYTES)

    await eventually(is_so)


@pytest.mark.parametrize("num_tokens", [1, 10, 30])
async def test_a_fork_has_the_history_of_its_source_at_once(
    client: Client, worker: FakeWorker, num_tokens: int
) -> None:
    source = await prepared(client, num_tokens)
    created = await client.create(client_label="mine", **fork_of(source))
    num_kept = min(num_tokens, SINK + WINDOW)
    assert created.session_id not in ("", source)
    assert (created.history_length, created.kv_live_bytes) == (num_tokens, num_kept * BYTES_PER_TOKEN)
    assert (created.model, created.sink, created.window) == ("Tiny", SINK, WINDOW)
    assert (created.exact, created.fingerprint, created.reserved_bytes) == (True, FINGERPRINT, LANE_BYTES)
    info, of_source = await client.info(created.session_id), await client.info(source)
    assert (info.history_length, info.kv_live_bytes) == (num_tokens, num_kept * BYTES_PER_TOKEN)
    assert (info.retained, info.state, info.epoch) == (of_source.retained, api.SESSION_STATE_OPEN, 1)
    ledger = (await client.workers())["worker-a"]
    assert (ledger.num_sessions, ledger.reserved_bytes) == (2, 2 * LANE_BYTES)
    assert ledger.kv_live_bytes == 2 * num_kept * BYTES_PER_TOKEN
    assert worker.calls["Append"] == 1


async def test_fork_and_source_go_on_for_themselves(client: Client, worker: FakeWorker) -> None:
    source = await prepared(client)
    fork = await client.session(**fork_of(source))
    assert (await client.append(fork, [1, 2], expected_history_length=10)).history_length == 12
    assert (await client.generate(source, 3))[-1].done.history_length == 13
    assert await client.close(source) == 13
    assert (await client.generate(fork, 1))[-1].done.history_length == 13
    assert worker.lanes[fork].token_ids[:12] == [*range(10), 1, 2]
    assert await client.close(fork) == 13
    ledger = (await client.workers())["worker-a"]
    assert (ledger.num_sessions, ledger.reserved_bytes, ledger.kv_live_bytes) == (0, 0, 0)


async def test_an_append_of_the_source_is_none_of_the_fork(client: Client, worker: FakeWorker) -> None:
    source = await prepared(client, 3)
    fork = await client.session(**fork_of(source))
    with pytest.raises(HistoryLengthMismatch):
        await client.append(fork, range(3), expected_history_length=0)
    assert (await client.append(source, range(3), expected_history_length=0)).history_length == 3


async def test_a_fork_has_what_its_source_has_and_a_label_and_ttl_of_its_own(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    options: dict[str, Any] = {
        "sink": 2,
        "window": 9,
        "on_overflow": api.OVERFLOW_POLICY_REFUSE,
        "eos_token_ids": [EOS],
    }
    source = await prepared(client, ttl_seconds=50, client_label="source", **options)
    for given in ({}, options | {"model": "Tiny", "fingerprint": FINGERPRINT, "pin": 2}):
        fork = await client.session(**given, **fork_of(source, boundary=10))
        record = await stack.redis.hgetall(SESSION.format(fork))
        assert (record["sink"], record["window"], record["on_overflow"]) == ("2", "9", "refuse")
        assert (record["eos"], record["ttl_ms"], record["label"]) == (str(EOS), "1800000", "")
        assert worker.lanes[fork].room == 1
        await client.close(fork)
    other = await client.session(ttl_seconds=60, client_label="fork", eos_token_ids=[8], **fork_of(source))
    record = await stack.redis.hgetall(SESSION.format(other))
    assert (record["eos"], record["ttl_ms"], record["label"]) == ("8", "60000", "fork")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"model": "Other"}, "model"),
        ({"fingerprint": "0" * 64}, "fingerprint"),
        ({"sink": 0}, "sink"),
        ({"window": WINDOW - 1}, "window"),
        ({"pin": SINK + 1}, "pin"),
        ({"on_overflow": api.OVERFLOW_POLICY_REFUSE}, "on_overflow"),
        ({"ttl_seconds": 0}, "ttl_seconds"),
    ],
)
async def test_what_is_not_the_source_s_is_refused(
    stack: Stack, client: Client, worker: FakeWorker, fields: dict[str, Any], field: str
) -> None:
    source = await prepared(client)
    with pytest.raises(InvalidField) as raised:
        await client.create(**fields, **fork_of(source))
    assert raised.value.metadata["field"] == field
    await only(stack, client, source)


@pytest.mark.parametrize("boundary", [11, 2**64 - 1])
async def test_what_is_yet_to_come_cannot_be_reached(
    stack: Stack, client: Client, worker: FakeWorker, boundary: int
) -> None:
    source = await prepared(client)
    with pytest.raises(BoundaryNotReachable) as raised:
        await client.create(**fork_of(source, boundary=boundary))
    assert raised.value.metadata == {"reachable": "10"}
    await only(stack, client, source)


@pytest.mark.parametrize("session_id", ["", "nonsense", "tiny.unknown", "Other Pool.x", "x" * 200])
async def test_an_unknown_source(stack: Stack, client: Client, worker: FakeWorker, session_id: str) -> None:
    with pytest.raises(SessionNotFound):
        await client.create(request_id="once", **fork_of(session_id))
    assert not await stack.session_keys()


async def test_redis_is_not_asked_for_what_no_router_issues(
    client: Client, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> None:
        raise AssertionError("it was")

    monkeypatch.setattr(CreationStore, "of_request", never)
    with pytest.raises(SessionNotFound):
        await client.create(request_id="once", **fork_of("tiny." + "x" * 1000))


async def test_a_source_is_its_tenants_own(redis_url: str) -> None:
    async with keyed_on(redis_url) as keyed:
        await keyed.worker()
        one, other = await keyed.tenant("one"), await keyed.tenant("other")
        source = await prepared(one)
        before = await _everything(keyed.stack)
        with pytest.raises(SessionNotFound):
            await other.create(request_id="once", **fork_of(source))
        assert await _everything(keyed.stack) == before
        colleague = await keyed.tenant("one")
        assert (await colleague.info(await colleague.session(**fork_of(source)))).history_length == 10


async def test_an_expired_source(stack: Stack, client: Client, worker: FakeWorker) -> None:
    source = await prepared(client)
    await expire(stack, source)
    await eventually(lambda: nothing(stack))
    with pytest.raises(SessionNotFound):
        await client.create(**fork_of(source))


async def test_a_fork_is_use_of_its_source(stack: Stack, client: Client, worker: FakeWorker) -> None:
    source = await prepared(client)
    before = await since(stack, source)
    for _ in range(3):
        await asyncio.sleep(0.01)
        await client.close(await client.session(**fork_of(source)))
        now = await since(stack, source)
        assert all(later > earlier for later, earlier in zip(now, before, strict=True))
        before = now


async def since(stack: Stack, session_id: str) -> tuple[int, float]:
    """Since when it is idle, and when it expires, in ms."""
    idle_since_ms = await stack.redis.hget(SESSION.format(session_id), "idle_since_ms")
    return int(idle_since_ms), await stack.redis.zscore("kakeya:{tiny}:expiry", session_id)


async def test_a_refused_fork_is_no_use_of_its_source(stack: Stack, client: Client, worker: FakeWorker) -> None:
    source = await prepared(client)
    before = await stack.redis.hget(SESSION.format(source), "idle_since_ms")
    await asyncio.sleep(0.01)
    with pytest.raises(BoundaryNotReachable):
        await client.create(**fork_of(source, boundary=11))
    with pytest.raises(InvalidField):
        await client.create(sink=SINK + 1, **fork_of(source))
    assert await stack.redis.hget(SESSION.format(source), "idle_since_ms") == before
    await client.create(**fork_of(source))
    assert await stack.redis.hget(SESSION.format(source), "idle_since_ms") > before


async def test_no_fork_branches_off_from_a_running_operation(stack: Stack, client: Client, worker: FakeWorker) -> None:
    async def is_running() -> bool:
        return worker.calls["Append"] == 2

    source = await prepared(client)
    worker.flowing.clear()
    appending = asyncio.create_task(client.append(source, [1]))
    await eventually(is_running)
    with pytest.raises(OperationRunning) as raised:
        await client.create(**fork_of(source))
    assert raised.value.retry_after_seconds
    worker.flowing.set()
    await appending
    assert (await client.create(**fork_of(source))).history_length == 11


async def test_what_a_vanished_router_left_behind_is_ended_first(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    source = await prepared(client)
    worker.lanes[source].token_ids += [3, 4]
    await _leave_behind(stack, source, start_length="10")
    assert (await eventually(lambda: _forked(client, source))).history_length == 12
    assert worker.calls["Stop"] == 1
    assert not await stack.redis.exists("kakeya:{tiny}:op:" + source)


async def _forked(client: Client, source: str) -> api.CreateSessionResponse | None:
    try:
        return await client.create(**fork_of(source))
    except OperationRunning:  # until leases count again, soon after the router has met this Redis
        return None


async def test_what_was_left_behind_is_ended_also_for_who_has_no_tokens_left(redis_url: str) -> None:
    async with keyed_on(redis_url, tenant_tokens_per_minute=5) as keyed:
        await keyed.worker()
        client = await keyed.tenant("one")
        source = await prepared(client)
        with pytest.raises(QuotaExceeded):
            await client.append(source, [1])
        await _leave_behind(keyed.stack, source, start_length="10")
        assert (await eventually(lambda: _forked(client, source))).history_length == 10


async def test_a_source_whose_lane_is_gone_gets_another_one_first(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client, beating=False)
    source = await prepared(client)
    worker.incarnation += "-reborn"
    worker.lanes.clear()
    await client.join(worker)
    fork = await client.create(**fork_of(source))
    assert worker.lanes[fork.session_id].token_ids == worker.lanes[source].token_ids
    assert worker.lanes[source].epoch > 1


async def test_a_parked_source_gets_a_lane_on_another_worker_first(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client)
    source = await prepared(client)
    await worker.vanish()
    await worker.lapse()

    async def is_parked() -> bool:
        return await stack.redis.hget(SESSION.format(source), "state") == "parked"

    await eventually(is_parked)
    other = await stack.worker(client, "worker-b")
    fork = await client.session(**fork_of(source))
    assert other.lanes[fork].token_ids == other.lanes[source].token_ids == list(range(10))
    assert other.lanes[source].epoch > 1


async def test_a_lost_source(stack: Stack) -> None:
    client = await stack.router(**FORGETFUL)
    worker = await stack.worker(client, beating=False)
    source = await client.session()
    for token_ids in ([1, 2], [3]):
        await client.append(source, token_ids)
    worker.incarnation += "-reborn"
    await client.join(worker)
    with pytest.raises(WorkerLost):
        await client.create(**fork_of(source))


async def test_a_failed_source(client: Client, worker: FakeWorker) -> None:
    source = await prepared(client)
    worker.failures["Append"] = [InvariantViolated("slots", metadata={"invariant": "inv1"})]
    for call in (client.append(source, [1]), client.create(**fork_of(source))):
        with pytest.raises(InvariantViolated):
            await call


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (OperationRunning("busy"), OperationRunning),
        (NoCapacity("no lane"), NoCapacity),
        (RuntimeError("a bug"), NoWorker),
    ],
)
async def test_a_source_that_changes_meanwhile_leaves_nothing(
    stack: Stack, client: Client, worker: FakeWorker, failure: Exception, kind: type[Exception]
) -> None:
    source = await prepared(client)
    worker.failures["OpenSession"] = [failure]
    with pytest.raises(kind):
        await client.create(request_id="once", **fork_of(source))
    await only(stack, client, source)
    assert list(worker.lanes) == [source]
    assert (await client.create(request_id="once", **fork_of(source))).history_length == 10


@pytest.mark.parametrize("failure", [SessionNotFound("no lane"), HistoryLengthMismatch("another length")])
async def test_a_source_that_is_elsewhere_by_then_is_looked_at_again(
    client: Client, worker: FakeWorker, failure: Exception
) -> None:
    source = await prepared(client)
    worker.failures["OpenSession"] = [failure]
    assert (await client.create(**fork_of(source))).history_length == 10
    assert worker.calls["OpenSession"] == 3


async def test_a_source_that_is_never_as_on_record_is_given_up(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    source = await prepared(client)
    worker.failures["OpenSession"] = [HistoryLengthMismatch("another length")] * 50
    with pytest.raises(NoWorker, match="changes each time"):
        await client.create(**fork_of(source))
    await only(stack, client, source)
    worker.failures["OpenSession"] = []
    assert (await client.create(**fork_of(source))).history_length == 10


async def test_a_source_that_goes_on_while_a_lane_is_reserved_is_copied_as_it_is_then(
    client: Client, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, reserve = await prepared(client), CreationStore.reserve

    async def late(*arguments: Any, **more: Any) -> Any:
        monkeypatch.setattr(CreationStore, "reserve", reserve)
        await client.append(source, [1])
        return await reserve(*arguments, **more)

    monkeypatch.setattr(CreationStore, "reserve", late)
    assert (await client.create(**fork_of(source))).history_length == 11


class ForgettingWorker(FakeWorker):
    """Its client closes a source while it is about to be copied."""

    closing: Client

    async def OpenSession(self, request: worker_api.OpenSessionRequest, context: Any) -> worker_api.OpenSessionResponse:
        if request.HasField("fork_from"):
            await self.closing.close(request.fork_from.session_id)
        return await super().OpenSession(request, context)


async def test_a_source_that_is_closed_meanwhile_is_not_found(stack: Stack, client: Client) -> None:
    async with ForgettingWorker() as worker:
        worker.closing = client
        await client.join(worker)
        source = await prepared(client)
        with pytest.raises(SessionNotFound):
            await client.create(**fork_of(source))
        await eventually(lambda: nothing_left(stack))
    assert not worker.lanes


async def nothing_left(stack: Stack) -> bool:
    return not await stack.session_keys()


async def test_a_worker_that_cannot_fork_is_told_from_one_that_does(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    worker.forks = False
    source = await prepared(client)
    with pytest.raises(InvalidField, match="older version") as raised:
        await client.create(**fork_of(source))
    assert raised.value.metadata["field"] == "fork_from"
    await only(stack, client, source)
    assert list(worker.lanes) == [source]


async def test_a_fork_does_not_wait_for_a_worker_that_cannot_fork(stack: Stack) -> None:
    client = await stack.router(admission="queue", queue_seconds=0)
    worker = await stack.worker(client, num_lanes=2)
    worker.forks = False
    source = await prepared(client)
    held = await client.session()
    fork = await waiting(stack, client, **fork_of(source))
    await client.close(held)
    with pytest.raises(InvalidField, match="older version"):
        await fork
    await stand(stack, 0)


async def test_an_empty_session_is_no_source(stack: Stack, client: Client, worker: FakeWorker) -> None:
    source = await client.session()
    for point in (fork_of(source), fork_of(source, boundary=0)):
        with pytest.raises(EmptyHistory):
            await client.create(**point)
    await client.append(source, [1])
    with pytest.raises(EmptyHistory):
        await client.create(**fork_of(source, boundary=0))
    await only(stack, client, source)


async def test_a_session_that_is_being_opened_is_no_source(stack: Stack, client: Client, worker: FakeWorker) -> None:
    source = await prepared(client)
    await stack.redis.hset(SESSION.format(source), "state", "opening")
    with pytest.raises(SessionNotFound):
        await client.create(**fork_of(source))


async def test_a_worker_that_leaves_in_the_middle(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the source and the look at the workers."""
    worker = await stack.worker(client, beating=False)
    source, some = await prepared(client), Fleet.some

    async def once_it_is_gone(fleet: Fleet, *args: Any, **named: Any) -> list[WorkerRecord]:
        monkeypatch.setattr(Fleet, "some", some)
        worker.incarnation += "-reborn"
        worker.lanes.clear()
        await client.join(worker)
        return await fleet.some_anew(*args, **named)

    monkeypatch.setattr(Fleet, "some", once_it_is_gone)
    fork = await client.session(**fork_of(source))
    assert worker.lanes[fork].token_ids == worker.lanes[source].token_ids == list(range(10))


async def test_a_worker_that_is_there_and_is_not(
    stack: Stack, client: Client, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller can come again: its source is not lost."""

    async def all_but_one(fleet: Fleet, *args: Any, **named: Any) -> list[WorkerRecord]:
        return [record for record in await some(fleet, *args, **named) if record.worker_id != "worker-a"]

    source = await prepared(client)
    await stack.worker(client, "worker-b")
    some = Fleet.some
    monkeypatch.setattr(Fleet, "some", all_but_one)
    with pytest.raises(NoWorker) as raised:
        await client.create(**fork_of(source))
    assert raised.value.retry_after_seconds
    monkeypatch.setattr(Fleet, "some", some)
    await client.create(**fork_of(source))


async def test_a_repeated_request_is_answered_with_the_same_fork(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    other_router = await stack.router()
    source = await prepared(client)
    first = await client.create(request_id="once", **fork_of(source))
    await client.append(source, [1])
    assert await other_router.create(request_id="once", **fork_of(source)) == first
    for other in ({}, fork_of(source, boundary=11), fork_of(first.session_id)):
        with pytest.raises(InvalidField) as raised:
            await client.create(request_id="once", **other)
        assert raised.value.metadata["field"] == "request_id"
    await client.close(source)
    assert await client.create(request_id="once", **fork_of(source)) == first
    assert list(worker.lanes) == [first.session_id]


async def test_only_the_worker_of_the_source_takes_its_forks(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client, "worker-a", num_lanes=2)
    source = await prepared(client)
    await stack.worker(client, "worker-b", num_lanes=8)
    assert (await client.info(await client.session(**fork_of(source)))).worker == "worker-a"
    with pytest.raises(NoCapacity):
        await client.create(**fork_of(source))
    assert (await client.info(await client.session())).worker == "worker-b"
    assert len(worker.lanes) == 2


async def test_quotas_count_forks(redis_url: str) -> None:
    async with keyed_on(redis_url, tenant_max_sessions=2) as keyed:
        await keyed.worker()
        client = await keyed.tenant("one")
        source = await prepared(client)
        await client.session(**fork_of(source))
        with pytest.raises(QuotaExceeded):
            await client.create(**fork_of(source))


async def test_a_fork_uses_up_no_tokens(redis_url: str) -> None:
    async with keyed_on(redis_url, tenant_tokens_per_minute=15) as keyed:
        await keyed.worker()
        client = await keyed.tenant("one")
        source = await prepared(client)
        for _ in range(3):
            fork = await client.session(**fork_of(source))
            await client.close(fork)
        assert (await client.append(source, [1])).history_length == 11


async def test_many_forks_at_once(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client, num_lanes=51)
    source = await prepared(client)
    forks = await asyncio.gather(*(client.create(**fork_of(source)) for _ in range(50)))
    assert {fork.history_length for fork in forks} == {10}
    assert len({fork.session_id for fork in forks} | {source}) == len(worker.lanes) == 51


@pytest.fixture
async def patient(stack: Stack) -> Client:
    return await stack.router(**QUEUE)


async def test_a_fork_waits_for_the_worker_of_its_source_and_holds_nobody_up(stack: Stack, patient: Client) -> None:
    await stack.worker(patient, "worker-a", num_lanes=2)
    source = await prepared(patient)
    held = await patient.session()
    fork = await waiting(stack, patient, **fork_of(source))
    await stack.worker(patient, "worker-b", num_lanes=1)
    other = await patient.session()
    assert (await patient.info(other)).worker == "worker-b"
    await patient.close(other)
    assert not fork.done()
    await patient.append(source, [1])  # while it waits; it then begins with that
    await patient.close(held)
    info = await patient.info(await fork)
    assert (info.worker, info.history_length) == ("worker-a", 11)


async def test_who_wants_any_worker_waits_behind_a_fork_at_its_source_s(stack: Stack, patient: Client) -> None:
    await stack.worker(patient, "worker-a", num_lanes=2)
    source = await prepared(patient)
    held = await patient.session()
    fork = await waiting(stack, patient, **fork_of(source))
    other = await waiting(stack, patient)
    await patient.close(held)
    await patient.close(await fork)
    assert (await patient.info(await other)).history_length == 0


async def test_a_boundary_that_is_left_while_a_fork_waits(stack: Stack, patient: Client) -> None:
    worker = await stack.worker(patient, num_lanes=2)
    source = await prepared(patient)
    held = await patient.session()
    fork = await waiting(stack, patient, **fork_of(source, boundary=10))
    await patient.append(source, [1])
    await patient.close(held)
    assert worker.lanes[await fork].token_ids == list(range(10))
    await stand(stack, 0)


async def test_a_source_that_is_closed_while_a_fork_waits(stack: Stack, patient: Client) -> None:
    await stack.worker(patient, num_lanes=2)
    source = await prepared(patient)
    held = await patient.session()
    fork = await waiting(stack, patient, **fork_of(source))
    await patient.close(source)
    with pytest.raises(SessionNotFound):
        await fork
    await patient.close(held)
    await eventually(lambda: nothing(stack))


async def test_room_for_a_fork_is_not_made_of_its_source(stack: Stack) -> None:
    client = await stack.router(admission="close-idle", close_idle_after_seconds=0.0, queue_seconds=600)
    await stack.worker(client, num_lanes=2)
    source = await prepared(client)
    idle = await client.session()
    await asyncio.sleep(0.05)
    fork = await client.create(**fork_of(source))
    assert fork.history_length == 10
    with pytest.raises(SessionNotFound):
        await client.info(idle)


async def test_a_source_is_not_closed_though_nobody_else_is_idle(stack: Stack) -> None:
    client = await stack.router(admission="close-idle", close_idle_after_seconds=0.0, queue_seconds=1.5)
    await stack.worker(client, num_lanes=1)
    source = await prepared(client)
    with pytest.raises(QueueTimedOut):
        await client.create(**fork_of(source))
    assert (await client.info(source)).history_length == 10
