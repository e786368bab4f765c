"""Every outcome of every Lua script, one by one; the other tests show them at work."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from importlib import resources

import pytest

from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.keys import PoolKeys
from kakeya_router.store.records import UNSET, SessionRecord, State, WorkerRecord
from kakeya_router.store.session_store import Cause, Intent, SessionStore
from kakeya_router.store.worker_store import Lane, WorkerStore
from kakeya_router.worker_sweep import WorkerSweep
from kakeya_shared.errors import StoreUnavailable

WORKER = WorkerRecord(
    worker_id="w",
    incarnation="i",
    pool="p",
    model="m",
    address="127.0.0.1:1",
    backend="fake",
    dtype="float32",
    slab_bytes=200,
    lane_bytes=100,
    num_lanes=2,
    sink=1,
    window=4,
    kv_bytes_per_token=10,
    vocab_size=100,
    num_threads=1,
)
SESSION = SessionRecord(
    session_id="p.one",
    pool="p",
    state=State.OPENING,
    model="m",
    worker_id="w",
    incarnation="i",
    address="127.0.0.1:1",
    epoch=1,
    sink=UNSET,
    window=UNSET,
    vocab_size=100,
    reserved_bytes=100,
    ttl_ms=60_000,
)
APPEND = Intent("append", {"num_tokens": 3}, 3, "digest")
GENERATE = Intent("generate", {"max_tokens": 3})
KEYS = PoolKeys("p")
LUA = resources.files("kakeya_router.store").joinpath("lua")


@pytest.fixture
async def connection(redis_url: str) -> AsyncIterator[RedisConnection]:
    connection = RedisConnection(redis_url)
    yield connection
    await connection.aclose()


@pytest.fixture
async def workers(connection: RedisConnection) -> WorkerStore:
    workers = WorkerStore(connection, worker_lease_seconds=10)
    assert await workers.join(WORKER) == "joined"
    return workers


@pytest.fixture
def sessions(connection: RedisConnection, workers: WorkerStore) -> SessionStore:
    return SessionStore(connection, "router", operation_lease_seconds=10, lane_lease_seconds=10, grace_seconds=0)


@pytest.fixture
def hasty(connection: RedisConnection, workers: WorkerStore) -> SessionStore:
    """Its leases lapse at once."""
    return SessionStore(connection, "router", operation_lease_seconds=-1, lane_lease_seconds=-1, grace_seconds=0)


async def opened(sessions: SessionStore, record: SessionRecord = SESSION) -> SessionRecord:
    assert (await sessions.reserve(record, "create")).outcome == "reserved"
    reply = await sessions.mark_open(record, "create", 1, 4)
    assert reply.outcome == "open"
    assert reply.record is not None
    return reply.record


async def ledger(workers: WorkerStore) -> tuple[int, int, int]:
    (worker,) = await workers.workers("p")
    return worker.reserved_bytes, worker.kv_live_bytes, worker.num_sessions


async def fields(sessions: SessionStore) -> SessionRecord:
    record = await sessions.get(SESSION.session_id)
    assert record is not None
    return record


def test_each_script_says_its_keys_arguments_and_answers() -> None:
    files = [file for file in LUA.iterdir() if file.name != "prelude.lua"]
    assert files
    for file in files:
        header = file.read_text().split("\nlocal", 1)[0].split("\nif", 1)[0]
        for part in ("-- KEYS", "-- ARGV", "-- returns"):
            assert part in header, file.name


async def test_an_id_without_a_pool_is_nobodys(sessions: SessionStore) -> None:
    assert await sessions.get("nonsense") is None


async def test_reserve_session(sessions: SessionStore, workers: WorkerStore) -> None:
    one, two, three = (replace(SESSION, session_id=f"p.{name}", request_id=name) for name in ("one", "two", "three"))
    assert (await sessions.reserve(one, "create")).outcome == "reserved"
    duplicate = await sessions.reserve(replace(three, request_id="one"), "create")
    assert (duplicate.outcome, duplicate.session_id) == ("duplicate", "p.one")
    assert (await sessions.reserve(two, "create")).outcome == "reserved"
    assert (await sessions.reserve(three, "create")).outcome == "full"
    assert (await sessions.reserve(replace(three, incarnation="old"), "create")).outcome == "gone"
    assert await ledger(workers) == (200, 0, 2)
    assert await sessions.of_request("p", "", "one") == "p.one"
    assert await sessions.of_request("p", "", "three") is None
    assert await sessions.get("p.three") is None


async def test_mark_open(sessions: SessionStore, workers: WorkerStore) -> None:
    await sessions.reserve(SESSION, "create")
    assert (await fields(sessions)).sink == UNSET
    assert (await sessions.mark_open(SESSION, "other", 9, 9)).outcome == "gone"
    opened = await sessions.mark_open(SESSION, "create", 1, 4)
    assert opened.record == await fields(sessions)
    assert (opened.outcome, opened.record.sink, opened.record.window) == ("open", 1, 4)
    assert (await sessions.mark_open(SESSION, "create", 9, 9)).outcome == "gone"
    other = replace(SESSION, session_id="p.two")
    await sessions.reserve(other, "create")
    await workers.drop("p", "w", "i", lapsed_only=False)
    assert (await sessions.mark_open(other, "create", 1, 4)).outcome == "gone"


async def test_mark_open_of_a_fork(sessions: SessionStore, workers: WorkerStore) -> None:
    await sessions.reserve(SESSION, "create")
    opened = await sessions.mark_open(SESSION, "create", 1, 4, history_length=9, kv_live_bytes=50, retained="0-1,5-9")
    assert opened.record is not None
    assert (opened.record.history_length, opened.record.kv_live_bytes) == (9, 50)
    assert opened.record.retained_ranges == [range(1), range(5, 9)]
    assert await ledger(workers) == (100, 50, 1)


async def test_use_source(sessions: SessionStore, hasty: SessionStore, workers: WorkerStore) -> None:
    async def use(store: SessionStore = sessions) -> str:
        return (await store.use_source(SESSION)).outcome

    assert await use() == "missing"
    await sessions.reserve(SESSION, "create")
    assert await use() == "missing"
    await sessions.mark_open(SESSION, "create", 1, 4)
    assert await use() == "empty"
    await sessions.begin_operation(SESSION, "first", APPEND)
    await sessions.end_operation(SESSION, "first", 9, 50, "")
    record = await sessions.get(SESSION.session_id)
    await asyncio.sleep(0.01)
    assert (await sessions.use_source(SESSION, 8)).rest == ("9",)
    assert await sessions.get(SESSION.session_id) == record
    reply = await sessions.use_source(SESSION, 9)
    assert record is not None
    assert reply.record is not None
    assert (reply.outcome, reply.record.idle_since_ms > record.idle_since_ms) == ("present", True)
    assert replace(reply.record, idle_since_ms=0) == replace(record, idle_since_ms=0)
    await sessions.begin_operation(SESSION, "a", APPEND)
    assert await use() == "busy"
    await sessions.release_operation(SESSION, "a")
    await hasty.begin_operation(SESSION, "b", APPEND)
    assert await use() == "left"
    await sessions.begin_operation(SESSION, "c", APPEND)
    await sessions.fail(SESSION, "c", "inv1")
    assert await use() == "failed"
    await sessions.begin_close(SESSION, "close", Cause.REQUEST)
    assert await use() == "missing"
    await sessions.delete(SESSION, "close", 0)
    await opened(sessions)
    await workers.drop("p", "w", "i", lapsed_only=False)
    assert await use() == "lost"


async def test_share_session(sessions: SessionStore) -> None:
    assert (await sessions.share(SESSION)).outcome == "missing"
    await sessions.reserve(SESSION, "create")
    opening = await sessions.share(SESSION)
    assert opening.record is not None
    assert (opening.outcome, opening.record.state, opening.record.shared) == ("shared", State.OPENING, False)
    await sessions.mark_open(SESSION, "create", 1, 4)
    opened_now = await sessions.share(SESSION)
    assert opened_now.record is not None
    assert (opened_now.record.state, opened_now.record.shared) == (State.OPEN, True)
    await sessions.begin_close(SESSION, "close", Cause.REQUEST)
    assert (await sessions.share(SESSION)).outcome == "missing"


async def test_begin_operation(sessions: SessionStore, hasty: SessionStore, workers: WorkerStore) -> None:
    async def begin(store: SessionStore, op_id: str) -> str:
        return (await store.begin_operation(SESSION, op_id, APPEND)).outcome

    assert await begin(sessions, "a") == "missing"
    await sessions.reserve(SESSION, "create")
    assert await begin(sessions, "a") == "missing"
    await sessions.mark_open(SESSION, "create", 1, 4)
    assert await begin(hasty, "a") == "begun"
    assert await begin(sessions, "b") == "recover"
    assert await begin(sessions, "c") == "busy"
    assert (await sessions.end_operation(SESSION, "b", 3, 30, "0-3")).outcome == "ended"
    assert (await fields(sessions)).append_end == 3
    assert await begin(sessions, "d") == "begun"
    await sessions.fail(SESSION, "d", "inv1")
    assert await begin(sessions, "e") == "failed"
    await sessions.begin_close(SESSION, "close", Cause.REQUEST)
    assert await begin(sessions, "f") == "missing"
    other = replace(SESSION, session_id="p.two")
    await opened(sessions, other)
    await workers.drop("p", "w", "i", lapsed_only=False)
    assert (await sessions.begin_operation(other, "g", GENERATE)).outcome == "lost"


async def test_a_lapsed_operation_is_not_taken_over_in_the_grace_period(
    connection: RedisConnection, sessions: SessionStore, hasty: SessionStore
) -> None:
    patient = SessionStore(connection, "router", operation_lease_seconds=10, lane_lease_seconds=10, grace_seconds=60)
    await opened(sessions)
    await hasty.begin_operation(SESSION, "a", GENERATE)
    assert (await patient.begin_operation(SESSION, "b", GENERATE)).outcome == "busy"


async def test_renew_operation(sessions: SessionStore, hasty: SessionStore, connection: RedisConnection) -> None:
    await opened(sessions)
    assert (await sessions.renew_operation(SESSION, "a")).outcome == "gone"
    await hasty.begin_operation(SESSION, "a", GENERATE)
    assert (await sessions.renew_operation(SESSION, "a")).outcome == "renewed"
    assert (await sessions.renew_operation(SESSION, "b")).outcome == "gone"
    assert (await sessions.begin_operation(SESSION, "b", GENERATE)).outcome == "busy"


async def test_end_operation(sessions: SessionStore, workers: WorkerStore) -> None:
    await opened(sessions)
    assert (await sessions.end_operation(SESSION, "a", 3, 30, "0-3")).outcome == "gone"
    await sessions.begin_operation(SESSION, "a", APPEND)
    assert (await sessions.end_operation(replace(SESSION, epoch=2), "a", 3, 30, "0-3")).outcome == "gone"
    assert (await sessions.end_operation(SESSION, "a", 3, 30, "0-3")).outcome == "ended"
    record = await fields(sessions)
    assert (record.history_length, record.kv_live_bytes, record.retained) == (3, 30, "0-3")
    assert (record.append_start, record.append_end, record.append_digest) == (0, 3, "digest")
    assert await ledger(workers) == (100, 30, 1)
    await sessions.begin_operation(SESSION, "b", APPEND)
    assert (await sessions.end_operation(SESSION, "b", 2, 20, "0-2")).outcome == "regressed"
    assert (await sessions.end_operation(SESSION, "b", 7, 50, "0-1,3-7")).outcome == "ended"
    record = await fields(sessions)
    assert (record.append_end, record.retained, record.num_dropped_tokens) == (3, "0-1,3-7", 2)
    assert await ledger(workers) == (100, 50, 1)


async def test_release_operation(sessions: SessionStore, connection: RedisConnection) -> None:
    before = await opened(sessions)
    assert (await sessions.release_operation(SESSION, "a")).outcome == "gone"
    await asyncio.sleep(0.01)  # so that the begin's time is another
    await sessions.begin_operation(SESSION, "a", GENERATE)
    assert (await sessions.release_operation(SESSION, "b")).outcome == "gone"
    assert (await sessions.release_operation(SESSION, "a")).outcome == "released"
    assert await fields(sessions) == before
    expires_at = await connection.call(lambda redis: redis.zscore(KEYS.expiry, SESSION.session_id))
    assert expires_at == before.idle_since_ms + before.ttl_ms


@pytest.mark.parametrize("invariant", ["inv1", "inv2"])
async def test_fail_session(sessions: SessionStore, workers: WorkerStore, invariant: str) -> None:
    await opened(sessions)
    assert (await sessions.fail(SESSION, "a", invariant)).outcome == "gone"
    await workers.report_lanes("p", "w", "i", [Lane(SESSION.session_id, 1, 3, 30, "0-3")])
    await sessions.begin_operation(SESSION, "a", GENERATE)
    assert (await sessions.fail(SESSION, "a", invariant)).outcome == "failed"
    record = await fields(sessions)
    assert (record.state, record.reserved_bytes, record.kv_live_bytes) == (State.FAILED, 0, 0)
    assert record.retained == ""
    assert getattr(record, f"{invariant}_violations") == 1
    assert record.inv1_violations + record.inv2_violations == 1
    assert await ledger(workers) == (0, 0, 0)


async def test_lose_session(sessions: SessionStore, workers: WorkerStore) -> None:
    await opened(sessions, replace(SESSION, request_id="r"))
    record = await fields(sessions)
    assert await sessions.lose_all([record], 1000) == ["alive"]
    await WorkerSweep(sessions, workers, 1.0).sweep("p", "i")  # ends, and takes nothing from a living incarnation
    assert (await fields(sessions)).state is State.OPEN
    await workers.report_lanes("p", "w", "i", [Lane(SESSION.session_id, 1, 3, 30, "0-3")])
    await sessions.begin_operation(record, "a", GENERATE)
    assert (await sessions.lose(record, "b", 1000)).outcome == "gone"
    assert (await sessions.lose(record, "a", 1000)).outcome == "lost"
    assert await ledger(workers) == (0, 0, 0)
    record = await fields(sessions)
    assert (record.state, record.kv_live_bytes, record.retained) == (State.LOST, 0, "")
    assert await sessions.of_request("p", "", "r") is None
    other = await opened(sessions, replace(SESSION, session_id="p.two"))
    closing = await opened(sessions, replace(SESSION, session_id="p.three"))
    await sessions.begin_close(closing, "close", Cause.REQUEST)
    await workers.drop("p", "w", "i", lapsed_only=False)
    assert await sessions.lose_all([record, other, closing], 1000) == ["gone", "lost", "gone"]
    assert not await sessions.of_incarnation("p", "i", 10)


async def test_begin_close(sessions: SessionStore, hasty: SessionStore, connection: RedisConnection) -> None:
    async def close(cause: Cause, store: SessionStore = sessions) -> str:
        return (await store.begin_close(SESSION, "close", cause)).outcome

    async def expire() -> None:
        await connection.call(lambda redis: redis.zadd(KEYS.expiry, {SESSION.session_id: 1}))

    await expire()
    assert await close(Cause.EXPIRY) == "missing"
    assert not await connection.call(lambda redis: redis.exists(KEYS.expiry))
    await sessions.reserve(SESSION, "create")
    assert await close(Cause.REQUEST) == "missing"
    await sessions.mark_open(SESSION, "create", 1, 4)
    assert await close(Cause.EXPIRY) == "kept"
    await sessions.begin_operation(SESSION, "a", GENERATE)
    await expire()
    assert await close(Cause.EXPIRY) == "kept"
    await sessions.release_operation(SESSION, "a")
    await sessions.share(SESSION)
    assert await close(Cause.ABANDON) == "kept"
    assert await close(Cause.REQUEST, hasty) == "claimed"
    assert await close(Cause.REQUEST) == "missing"
    assert await close(Cause.EXPIRY, hasty) == "claimed"
    await connection.call(lambda redis: redis.zrem(KEYS.expiry, SESSION.session_id))
    assert await close(Cause.EXPIRY) == "kept"


async def test_abandon_takes_a_session_that_is_still_being_opened(sessions: SessionStore) -> None:
    await sessions.reserve(replace(SESSION, request_id="r"), "create")
    claimed = await sessions.begin_close(replace(SESSION, request_id="r"), "close", Cause.ABANDON)
    assert claimed.outcome == "claimed"
    assert claimed.record is not None
    assert claimed.record.state is State.OPENING
    assert await sessions.of_request("p", "", "r") is None


async def test_delete_session(sessions: SessionStore, workers: WorkerStore, connection: RedisConnection) -> None:
    await opened(sessions)
    assert (await sessions.delete(SESSION, "close", 0)).outcome == "gone"
    await sessions.begin_close(SESSION, "close", Cause.REQUEST)
    assert (await sessions.delete(SESSION, "other", 0)).outcome == "gone"
    assert (await sessions.delete(SESSION, "close", 0)).outcome == "deleted"
    assert (await sessions.delete(SESSION, "close", 0)).outcome == "gone"
    assert await ledger(workers) == (0, 0, 0)
    keys = await connection.call(lambda redis: redis.keys("*"))
    assert set(keys) == {"kakeya:pools", KEYS.workers, KEYS.worker("w")}


async def test_join_worker(workers: WorkerStore) -> None:
    assert await workers.join(WORKER) == "renewed"
    assert await workers.join(replace(WORKER, incarnation="j")) == "replaced"
    assert await workers.lost("p") == ["i"]
    assert await workers.join(WORKER) == "sweeping"
    await workers.swept("p", "i")
    assert await workers.join(WORKER) == "replaced"


async def test_heartbeat(workers: WorkerStore) -> None:
    assert await workers.heartbeat("p", "w", "i", kv_live_bytes=70, rss_bytes=5_000_000_000)
    assert not await workers.heartbeat("p", "w", "j", kv_live_bytes=80, rss_bytes=1)
    assert not await workers.heartbeat("p", "x", "i", kv_live_bytes=80, rss_bytes=1)
    (worker,) = await workers.workers("p")
    assert (worker.reported_kv_live_bytes, worker.rss_bytes) == (70, 5_000_000_000)


async def test_report_lane(sessions: SessionStore, workers: WorkerStore) -> None:
    async def orphan(epoch: int = 1, length: int = 0, incarnation: str = "i") -> bool:
        lane = Lane(SESSION.session_id, epoch, length, length * 10, f"0-{length}")
        return await workers.report_lanes("p", "w", incarnation, [lane]) == [lane]

    assert await orphan()
    await sessions.reserve(SESSION, "create")
    assert not await orphan(length=9)
    await sessions.mark_open(SESSION, "create", 1, 4)
    assert (await fields(sessions)).history_length == 0
    assert not await orphan(length=3)
    assert not await orphan(length=2)
    record = await fields(sessions)
    assert (record.history_length, record.kv_live_bytes, record.retained) == (3, 30, "0-3")
    assert await ledger(workers) == (100, 30, 1)
    assert await orphan(epoch=2)
    assert await orphan(incarnation="j")
    await sessions.begin_operation(SESSION, "a", GENERATE)
    await sessions.fail(SESSION, "a", "inv1")
    assert await orphan(length=3)


async def test_a_report_after_the_worker_was_dropped_touches_no_ledger(
    sessions: SessionStore, workers: WorkerStore
) -> None:
    await opened(sessions)
    await workers.drop("p", "w", "i", lapsed_only=False)
    await workers.join(replace(WORKER, incarnation="j"))
    assert await workers.report_lanes("p", "w", "i", [Lane(SESSION.session_id, 1, 3, 30, "0-3")]) == []
    assert await ledger(workers) == (0, 0, 0)


async def test_drop_worker(connection: RedisConnection, workers: WorkerStore) -> None:
    assert not await workers.drop("p", "w", "j", lapsed_only=False)
    assert not await workers.drop("p", "w", "i", lapsed_only=True)
    await connection.call(lambda redis: redis.zadd(KEYS.workers, {"w": 1}))
    assert [worker.worker_id for worker in await workers.lapsed("p", 10)] == ["w"]
    assert await workers.drop("p", "w", "i", lapsed_only=True)
    assert not await workers.drop("p", "w", "i", lapsed_only=False)
    assert (await workers.workers("p"), await workers.lost("p")) == ([], ["i"])


async def test_announce_router(connection: RedisConnection) -> None:
    brief, lasting = WorkerStore(connection, 0), WorkerStore(connection, 10)
    assert await brief.announce_router("a:1") == []
    assert await lasting.announce_router("b:1") == ["b:1"]
    assert await lasting.announce_router("c:1") == ["b:1", "c:1"]
    await lasting.forget_router("b:1")
    assert await lasting.routers() == ["c:1"]


async def test_scripts_survive_a_flush_of_the_script_cache(
    connection: RedisConnection, sessions: SessionStore, workers: WorkerStore
) -> None:
    await opened(sessions)
    await connection.call(lambda redis: redis.script_flush())
    assert (await sessions.begin_operation(SESSION, "a", GENERATE)).outcome == "begun"
    await connection.call(lambda redis: redis.script_flush())
    assert await workers.report_lanes("p", "w", "i", [Lane(SESSION.session_id, 1, 0, 0, "")]) == []


async def test_a_lack_of_connections_is_no_outage(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kakeya_router.store.connection._MAX_CONNECTIONS", 1)
    monkeypatch.setattr("kakeya_router.store.connection._TIMEOUT_SECONDS", 0.2)
    busy = RedisConnection(redis_url)
    await busy.now_ms()
    pool = busy._redis.connection_pool
    taken = await pool.get_connection()
    with pytest.raises(StoreUnavailable):
        await busy.now_ms()
    assert busy.answers_for(0)
    await pool.release(taken)
    await busy.now_ms()
    await busy.aclose()
