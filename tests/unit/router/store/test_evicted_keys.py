"""Redis drops keys, as where its memory is full and its policy allows it: what is told then, and what comes back."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from kakeya_shared.errors.tree import Internal, KakeyaError, NoWorker, SessionNotFound
from kakeya_stubs.admin.v1 import admin_pb2
from tests.redis_server import RedisServer
from tests.unit.router.fake_worker import LANE_BYTES, FakeWorker, SnapshotFiles
from tests.unit.router.stack import Client, Stack, answer, eventually, stack_on
from tests.unit.router.store.test_set_back import HISTORY, turn

SESSION, OPERATION = "kakeya:{{tiny}}:session:{}", "kakeya:{{tiny}}:op:{}"
KINDS = ["worker:worker-a", "workers", "sessions:*", "expiry", "usage", "idle", "queue", "waiters", "evicted", "lost"]


@pytest.fixture
async def stored(stack: Stack, client: Client) -> FakeWorker:
    return await stack.worker(client, files=SnapshotFiles(), num_lanes=6)


async def evict(stack: Stack, pattern: str) -> None:
    for key in await stack.keys(pattern):
        await stack.redis.delete(key)


async def ledger(client: Client) -> tuple[int, int, int]:
    (worker,) = (await client.workers()).values()
    return worker.num_sessions, worker.reserved_bytes, worker.kv_live_bytes


async def told(call: Any) -> None:
    """Whatever it says, it says what it means."""
    try:
        await call
    except KakeyaError as error:
        assert not isinstance(error, Internal), error


@pytest.mark.parametrize("kind", KINDS)
async def test_a_session_goes_on_when_a_list_or_a_worker_is_evicted(
    stack: Stack, client: Client, stored: FakeWorker, kind: str
) -> None:
    session_id = await client.session()
    await turn(stack, client, session_id, stored.files)
    await evict(stack, f"kakeya:{{tiny}}:{kind}")
    await told(client.workers())
    await told(client.info(session_id))
    if kind == "worker:worker-a":  # it learns that it is not known, gives its lanes up, and joins anew
        stored.stop_beating()
        stored.lanes.clear()
        stored.incarnation += "-again"
        await client.join(stored)
        stored.keep_beating(client.registry)
    else:
        await client.beat(stored)
    assert (await client.append(session_id, [1], expected_history_length=35)).history_length == 36
    assert stored.lanes[session_id].token_ids == [*HISTORY, 1]
    assert (await client.generate(session_id, 2))[-1].done.history_length == 38
    assert await stack.redis.zscore("kakeya:{tiny}:expiry", session_id) is not None
    await client.close(session_id)
    assert await eventually(lambda: is_ledger(client, (0, 0, 0)))


async def is_ledger(client: Client, expected: tuple[int, int, int]) -> bool:
    return await ledger(client) == expected


@pytest.mark.parametrize("call", ["append", "generate", "info", "park", "rewind", "close", "fork"])
async def test_a_session_whose_record_is_evicted_is_not_found(
    stack: Stack, client: Client, stored: FakeWorker, call: str
) -> None:
    session_id = await client.session()
    await turn(stack, client, session_id, stored.files)
    await stack.redis.delete(SESSION.format(session_id))
    calls = {
        "append": lambda: client.append(session_id, [1]),
        "generate": lambda: client.generate(session_id, 1),
        "info": lambda: client.info(session_id),
        "park": lambda: client.park(session_id),
        "rewind": lambda: client.rewind(session_id, 1),
        "close": lambda: client.close(session_id),
        "fork": lambda: client.session(fork_from={"session_id": session_id}),
    }
    with pytest.raises(SessionNotFound):
        await calls[call]()
    orphans = (await client.beat(stored)).orphans
    assert [orphan.session_id for orphan in orphans] == [session_id]
    await stack.redis.zadd("kakeya:{tiny}:expiry", {session_id: 1})
    with capture_logs() as logs:
        await eventually(lambda: nothing_left(stack, client, session_id))
    wrong = {entry["count"] for entry in logs if entry["event"] == "a ledger was wrong and is corrected"}
    assert wrong == {"reserved_bytes", "num_sessions", "kv_live_bytes", "|sessions", "|bytes"}


@pytest.mark.parametrize("is_evicted", [False, True])
async def test_a_request_whose_session_is_lost_or_evicted_is_answered_with_another(
    stack: Stack, client: Client, stored: FakeWorker, is_evicted: bool
) -> None:
    session_id = await client.session(request_id="once")
    if is_evicted:
        await stack.redis.delete(SESSION.format(session_id))
    else:
        await stack.redis.hset(SESSION.format(session_id), "state", "lost")
    other = await client.session(request_id="once")
    assert other != session_id
    assert await client.session(request_id="once") == other


@pytest.mark.parametrize("is_fork", [False, True])
async def test_a_session_that_is_evicted_while_it_is_opened_is_opened_anew(
    stack: Stack, client: Client, stored: FakeWorker, is_fork: bool
) -> None:
    fields: dict[str, Any] = {"request_id": "once"}
    if is_fork:
        source_id = await client.session()
        await turn(stack, client, source_id, stored.files)
        fields["fork_from"] = {"session_id": source_id, "boundary": 30}
    before = await stack.keys("kakeya:{tiny}:session:*")
    stored.flowing.clear()
    creating = asyncio.create_task(client.session(**fields))
    (evicted,) = await eventually(lambda: opening(stack, before))
    await stack.redis.delete(evicted)
    stored.flowing.set()
    try:
        made = await creating
    except NoWorker:
        made = await client.session(**fields)
    assert SESSION.format(made) != evicted


async def opening(stack: Stack, before: set[str]) -> set[str]:
    return await stack.keys("kakeya:{tiny}:session:*") - before


async def nothing_left(stack: Stack, client: Client, session_id: str) -> bool:
    left = [
        key
        for key in await stack.session_keys()
        if session_id in key or key.endswith((":usage", ":expiry", ":snapshot_bytes"))
    ]
    return not left and await ledger(client) == (0, 0, 0)


@pytest.mark.parametrize("evicted", ["session", "op"])
async def test_what_is_evicted_in_the_middle_of_a_generate(
    stack: Stack, client: Client, stored: FakeWorker, evicted: str
) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    stored.pause_in = 1
    call = client.generating(session_id, 10_000)
    await call.read()
    await stack.redis.delete((SESSION if evicted == "session" else OPERATION).format(session_id))
    stored.flowing.set()
    with pytest.raises(KakeyaError) as raised:
        while await answer(call.read()):
            continue
    assert not isinstance(raised.value, Internal)
    if evicted == "op":
        before = (await client.info(session_id)).history_length

        async def appended() -> Any:
            try:
                # What had no answer may have been done; at the length that it expects it is not done twice.
                return await client.append(session_id, [5, 6], expected_history_length=before)
            except KakeyaError as error:
                assert not isinstance(error, Internal)
                return None

        assert (await eventually(appended)).history_length == before + 2
        tokens = stored.lanes[session_id].token_ids
        assert tokens[2:-2] == [100 + length % 800 for length in range(2, before)]
    else:
        with pytest.raises(SessionNotFound):
            await client.append(session_id, [1])


async def test_a_ledger_that_lost_a_part_is_counted_anew(stack: Stack, client: Client, stored: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    worker = "kakeya:{tiny}:worker:worker-a"
    for wrong in (-140, 5 * LANE_BYTES):
        await stack.redis.hset(worker, mapping={"reserved_bytes": wrong, "num_sessions": -1, "kv_live_bytes": -5})
        await stack.redis.hset("kakeya:{tiny}:usage", mapping={"|sessions": -3, "|bytes": wrong, "b|bytes": 9})
        assert min(await ledger(client)) >= 0
        request = admin_pb2.ListTenantsRequest()
        assert (await answer(client.admin.ListTenants(request))).tenants
        assert await eventually(lambda: is_ledger(client, (1, LANE_BYTES, 200)))
        assert await eventually(lambda: is_usage(stack, {"|sessions": "1", "|bytes": str(LANE_BYTES)}))


async def is_usage(stack: Stack, expected: dict[str, str]) -> bool:
    return bool(await stack.redis.hgetall("kakeya:{tiny}:usage") == expected)


@pytest.mark.parametrize(
    ("maxmemory", "policy", "warned"),
    [
        ("0", "allkeys-lru", []),
        ("100mb", "noeviction", []),
        ("100mb", "allkeys-lru", ["maxmemory-policy is allkeys-lru"]),
    ],
)
async def test_a_policy_that_drops_keys_is_warned_of(
    own_redis: RedisServer, maxmemory: str, policy: str, warned: list[str]
) -> None:
    async with stack_on(own_redis.url) as stack:
        await stack.redis.config_set("maxmemory", maxmemory)
        await stack.redis.config_set("maxmemory-policy", policy)
        for may_be_asked in (True, False):
            if not may_be_asked:
                await stack.redis.execute_command("ACL", "SETUSER", "default", "-info")
            with capture_logs() as logs:
                await stack.router()
                await eventually(lambda: serves(logs))  # awaited at once
            said = [entry["reason"].split(":")[0] for entry in logs if "may lose sessions" in entry["event"]]
            assert said == (warned if may_be_asked else [])


async def serves(logs: list[Any]) -> bool:
    return any("serving" in entry["event"] for entry in logs)
