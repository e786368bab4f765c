"""CreateSession, GetSessionInfo and CloseSession."""

import asyncio

import pytest

from kakeya_router.sessions import opening
from kakeya_shared.errors.tree import (
    InvalidField,
    NoWorker,
    SessionNotFound,
    TokenOutOfVocabulary,
)
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import (
    BYTES_PER_TOKEN,
    FINGERPRINT,
    LANE_BYTES,
    SINK,
    VOCAB_SIZE,
    WINDOW,
    FakeWorker,
)
from tests.unit.router.stack import Client, Stack, eventually, leave


async def test_a_new_session_is_empty_and_its_whole_lane_is_reserved(client: Client, worker: FakeWorker) -> None:
    created = await client.create(client_label="mine", eos_token_ids=[7])
    assert created.session_id.startswith("tiny.")
    assert (created.model, created.sink, created.window) == ("Tiny", SINK, WINDOW)
    assert (created.reserved_bytes, created.vocab_size) == (LANE_BYTES, VOCAB_SIZE)
    assert (created.exact, created.fingerprint) == (True, FINGERPRINT)
    info = await client.info(created.session_id)
    assert (info.state, info.history_length, info.kv_live_bytes) == (api.SESSION_STATE_OPEN, 0, 0)
    assert (info.reserved_bytes, info.model, info.worker, info.epoch) == (LANE_BYTES, "Tiny", "worker-a", 1)
    assert (info.exact, info.fingerprint, list(info.retained)) == (True, FINGERPRINT, [])
    assert 0 <= info.idle_seconds < 60
    ledger = (await client.workers())["worker-a"]
    assert (ledger.reserved_bytes, ledger.num_sessions, ledger.kv_live_bytes) == (LANE_BYTES, 1, 0)


async def test_a_session_may_ask_for_less_than_the_lane(client: Client, worker: FakeWorker) -> None:
    created = await client.create(sink=0, window=3)
    assert (created.sink, created.window, created.reserved_bytes) == (0, 3, LANE_BYTES)
    appended = await client.append(created.session_id, range(10))
    assert appended.kv_live_bytes == 3 * BYTES_PER_TOKEN


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"window": 0}, "window"),
        ({"window": WINDOW + 1}, "window"),
        ({"window": WINDOW, "sink": SINK + 1}, "window"),
        ({"pin": SINK + WINDOW}, "pin"),
        ({"on_overflow": 9}, "on_overflow"),
        ({"ttl_seconds": 0}, "ttl_seconds"),
        ({"client_label": "é" * 129}, "client_label"),
    ],
)
async def test_an_impossible_session_is_refused(
    client: Client, worker: FakeWorker, stack: Stack, fields: dict[str, int | str], field: str
) -> None:
    with pytest.raises(InvalidField) as raised:
        await client.create(**fields)
    assert raised.value.metadata["field"] == field
    assert not await stack.session_keys()
    assert (await client.workers())["worker-a"].reserved_bytes == 0


@pytest.mark.parametrize(
    ("fields", "sink", "window"),
    [
        ({"pin": 9}, 9, SINK + WINDOW - 9),
        ({"pin": 1}, SINK, WINDOW),
        ({"pin": 9, "window": 3}, 9, 3),
        ({"sink": 0}, 0, SINK + WINDOW),
    ],
)
async def test_what_is_left_open_is_chosen_by_the_worker_and_kept_on_record(
    stack: Stack, client: Client, worker: FakeWorker, fields: dict[str, int], sink: int, window: int
) -> None:
    created = await client.create(**fields)
    assert (created.sink, created.window) == (sink, window)
    record = await stack.redis.hgetall(f"kakeya:{{tiny}}:session:{created.session_id}")
    assert (record["sink"], record["window"], record["pin"]) == (str(sink), str(window), str(fields.get("pin", -1)))


async def test_an_eos_token_outside_the_vocabulary_is_refused(client: Client, worker: FakeWorker) -> None:
    with pytest.raises(TokenOutOfVocabulary):
        await client.create(eos_token_ids=[VOCAB_SIZE])


async def test_an_unforeseen_error_of_the_worker_leaves_nothing(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    worker.failures["OpenSession"] = [RuntimeError("a bug")]
    with pytest.raises(NoWorker):
        await client.create()
    await eventually(lambda: _none(stack))


async def _none(stack: Stack) -> bool:
    return not await stack.session_keys()


async def test_a_repeated_request_is_answered_with_the_same_session(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    other_router = await stack.router()
    first = await client.create(request_id="once")
    assert await other_router.create(request_id="once") == first
    assert (await client.workers())["worker-a"].num_sessions == 1
    await client.close(first.session_id)
    assert not await stack.session_keys()
    assert (await client.create(request_id="once")).session_id != first.session_id


async def test_another_request_under_the_same_id_is_refused(client: Client, worker: FakeWorker) -> None:
    first = await client.session(request_id="once", window=8)
    for other in ({"window": 9}, {"window": 8, "pin": 1}, {"window": 8, "eos_token_ids": [1]}):
        with pytest.raises(InvalidField) as raised:
            await client.create(request_id="once", **other)
        assert raised.value.metadata["field"] == "request_id"
    assert await client.session(request_id="once", window=8) == first


async def test_a_repeated_request_needs_no_free_lane(stack: Stack, client: Client) -> None:
    await stack.worker(client, num_lanes=1)
    assert await client.session(request_id="once") == await client.session(request_id="once")


async def test_equal_requests_at_once_make_one_session(stack: Stack, client: Client, worker: FakeWorker) -> None:
    other_router = await stack.router()
    worker.flowing.clear()
    creating = [asyncio.create_task(c.session(request_id="once")) for c in (client, other_router) * 3]
    await eventually(lambda: _opening(worker))
    await asyncio.sleep(0.1)
    worker.flowing.set()
    assert len(set(await asyncio.gather(*creating))) == 1
    assert len(worker.lanes) == 1


async def test_equal_requests_in_lockstep_make_one_session(stack: Stack, client: Client) -> None:
    other_router = await stack.router()
    worker = await stack.worker(client, num_lanes=2)
    pair = (client, other_router)
    for step in range(20):
        await asyncio.gather(*(c.workers() for c in pair * 4))  # connections are there
        session_ids = await asyncio.gather(*(c.session(request_id=f"request-{step}") for c in pair * 4))
        assert len(set(session_ids)) == 1
        assert await eventually(lambda: _single(worker))
        await client.close(session_ids[0])
    assert not await stack.session_keys()


async def _single(worker: FakeWorker) -> bool:
    return len(worker.lanes) == 1


async def test_opening_may_take_longer_than_an_operations_lease(stack: Stack, worker: FakeWorker) -> None:
    client, patient = await stack.router(operation_lease_seconds=0.1), await stack.router()
    worker.flowing.clear()
    creating = asyncio.create_task(client.session())
    await eventually(lambda: _opening(worker))
    await asyncio.sleep(0.3)
    worker.flowing.set()
    assert (await patient.append(await creating, [1])).history_length == 1
    assert worker.calls["OpenSession"] == 1


async def test_a_worker_that_does_not_answer_in_time_is_passed_over(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "LANE_SECONDS", 0.5)
    silent = await stack.worker(client, "worker-a", num_lanes=8)
    await stack.worker(client, "worker-b", num_lanes=4)
    silent.flowing.clear()
    creating = asyncio.create_task(client.session())
    await eventually(lambda: _opening(silent))
    monkeypatch.setattr(opening, "LANE_SECONDS", 60.0)  # the other one has all the time that it needs
    assert (await client.info(await creating)).worker == "worker-b"
    assert (await client.workers())["worker-a"].reserved_bytes == 0


async def test_something_else_behind_a_workers_address_is_passed_over(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client)
    worker.address = client.address
    worker.incarnation += "-misplaced"
    await client.join(worker)
    with pytest.raises(NoWorker):
        await client.create()
    await eventually(lambda: _none(stack))


async def _opening(worker: FakeWorker) -> int:
    return worker.calls["OpenSession"]


async def test_a_vanished_client_leaves_no_session(stack: Stack, client: Client, worker: FakeWorker) -> None:
    worker.flowing.clear()
    call = client.runtime.CreateSession(api.CreateSessionRequest(request_id="once"))
    await eventually(lambda: _opening(worker))
    await leave(call, "CreateSession")
    worker.flowing.set()
    await eventually(lambda: _none(stack))
    assert not worker.lanes


async def test_a_session_that_a_repeated_request_has_got_is_not_abandoned(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    session_id = await client.session(request_id="once")
    await client.session(request_id="once")
    assert await stack.redis.hget(f"kakeya:{{tiny}}:session:{session_id}", "shared") == "1"


async def test_close_returns_the_final_length_and_leaves_nothing(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    session_id = await client.session(client_label="x", request_id="r")
    await client.append(session_id, range(30))
    assert await client.close(session_id) == 30
    assert not worker.lanes
    assert not await stack.session_keys()
    ledger = (await client.workers())["worker-a"]
    assert (ledger.reserved_bytes, ledger.kv_live_bytes, ledger.num_sessions) == (0, 0, 0)
    with pytest.raises(SessionNotFound):
        await client.close(session_id)


async def test_close_does_not_need_the_worker(stack: Stack, client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, range(5))
    await worker.vanish()
    assert await client.close(session_id) == 5
    assert not await stack.session_keys()


@pytest.mark.parametrize("failure", [RuntimeError("a bug"), SessionNotFound("no lane")])
async def test_close_goes_on_whatever_the_worker_says(
    stack: Stack, client: Client, worker: FakeWorker, failure: Exception
) -> None:
    session_id = await client.session()
    worker.failures["CloseSession"] = [failure]
    assert await client.close(session_id) == 0
    assert not await stack.session_keys()


@pytest.mark.parametrize("session_id", ["", "nonsense", "tiny.unknown", "Other Pool.x", "tiny.{x}"])
async def test_unknown_sessions(client: Client, worker: FakeWorker, session_id: str) -> None:
    for call in (
        client.info(session_id),
        client.close(session_id),
        client.append(session_id, [1]),
        client.generate(session_id),
    ):
        with pytest.raises(SessionNotFound):
            await call


async def test_info_neither_waits_for_the_worker_nor_refreshes_idle_time(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, range(8))
    await asyncio.sleep(0.2)
    before = (await client.info(session_id)).idle_seconds
    await asyncio.sleep(0.2)
    after = (await client.info(session_id)).idle_seconds
    assert before >= 0.2
    assert after >= before + 0.2
    worker.flowing.clear()
    appending = asyncio.create_task(client.append(session_id, range(4)))
    await eventually(lambda: _appending(worker))
    info = await client.info(session_id)
    assert (info.idle_seconds, info.history_length, info.kv_live_bytes) == (0, 12, 8 * BYTES_PER_TOKEN)
    worker.flowing.set()
    await appending


async def _appending(worker: FakeWorker) -> bool:
    return worker.calls["Append"] == 2


async def test_a_closing_session_is_gone_for_everybody(stack: Stack, client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await stack.redis.hset(f"kakeya:{{tiny}}:session:{session_id}", "state", "closing")
    for call in (client.info(session_id), client.close(session_id), client.append(session_id, [1])):
        with pytest.raises(SessionNotFound):
            await call
