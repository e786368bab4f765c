"""Every outcome of every Lua script, one by one; the other tests show them at work."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from kakeya_router.snapshots.past import Past
from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.fleet.worker_store import Lane, WorkerStore
from kakeya_router.store.keys import PoolKeys
from kakeya_router.store.outcomes import BeginOperation, LoseLane, ParkSession, ResumeSession, UseSource
from kakeya_router.store.session_record import (
    UNSET,
    Claim,
    Epoch,
    Incarnation,
    LaneState,
    PoolName,
    SessionId,
    SessionRecord,
    State,
    WorkerId,
    parse_ranges,
)
from kakeya_router.store.sessions.session_changes import Cause, Intent, TimesToLive
from kakeya_router.store.sessions.session_lists import TenantUsage
from kakeya_router.store.sessions.session_store import Answer, pack, unpack
from kakeya_router.store.sessions.stored_snapshots import Snapshots, StoredSnapshot, parse, text
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_router.workers.worker_sweep import WorkerSweep
from kakeya_shared.contract.history_digest import EMPTY_HISTORY, extended_digest
from kakeya_shared.errors.tree import StoreUnavailable
from tests.unit.router.session_stores import LaneAtRest, SessionStores, identity

POOL = PoolName("p")
TWO, THREE = SessionId("p.two"), SessionId("p.three")
FIRST = Epoch(1)
A, B, C = Claim("a"), Claim("b"), Claim("c")
CREATE, CLOSE = Claim("create"), Claim("close")
WORKER = WorkerRecord(
    worker_id=WorkerId("w"),
    incarnation=Incarnation("i"),
    pool=POOL,
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
    session_id=SessionId("p.one"),
    pool=POOL,
    state=State.OPENING,
    model="m",
    worker_id=WorkerId("w"),
    incarnation=Incarnation("i"),
    address="127.0.0.1:1",
    epoch=FIRST,
    sink=UNSET,
    window=UNSET,
    vocab_size=100,
    reserved_bytes=100,
    ttl_ms=60_000,
)
APPEND = Intent("append", {"num_tokens": 3}, 3, "digest")
GENERATE = Intent("generate", {"max_tokens": 3})
RETENTION = TimesToLive(lost_ms=1_000, parked_ms=3_600_000)
OTHER_WORKER = replace(
    WORKER, worker_id=WorkerId("v"), incarnation=Incarnation("j"), address="127.0.0.1:2", lane_bytes=70
)
SNAPSHOT = StoredSnapshot("p/one-1-0", 0, 2, 20)
KEYS = PoolKeys(POOL)


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
def sessions(connection: RedisConnection, workers: WorkerStore) -> SessionStores:
    return SessionStores(connection)


@pytest.fixture
def hasty(connection: RedisConnection, workers: WorkerStore) -> SessionStores:
    """Its leases lapse at once."""
    return SessionStores(connection, operation_lease_seconds=-1, lane_lease_seconds=-1)


async def opened(sessions: SessionStores, record: SessionRecord = SESSION) -> SessionRecord:
    assert (await sessions.reserve(record, CREATE)).outcome == "reserved"
    reply = await sessions.mark_open(record, CREATE, 1, 4)
    assert reply.outcome == "open"
    return reply.record


async def ledger(workers: WorkerStore, worker_id: str = "w") -> tuple[int, int, int]:
    (worker,) = [worker for worker in await workers.workers(POOL) if worker.worker_id == worker_id]
    return worker.reserved_bytes, worker.kv_live_bytes, worker.num_sessions


async def fields(sessions: SessionStores, session_id: SessionId = SESSION.session_id) -> SessionRecord:
    record = await sessions.get(session_id)
    assert record is not None
    return record


async def journaled(connection: RedisConnection, session_id: SessionId = SESSION.session_id) -> list[int]:
    """All that the journal holds."""
    return unpack(await connection.read_bytes(KEYS.journal(session_id), 0, 1 << 20))


async def change(connection: RedisConnection, **values: str | int) -> None:
    """As an older router would."""
    await connection.call(lambda redis: redis.hset(KEYS.session(SESSION.session_id), mapping=values))


async def score(connection: RedisConnection, key: str, session_id: SessionId = SESSION.session_id) -> float | None:
    found: float | None = await connection.call(lambda redis: redis.zscore(key, session_id))
    return found


async def run(sessions: SessionStores, num_tokens: int, intent: Intent = GENERATE) -> None:
    """An operation that makes the history grow, by tokens that are one more than their history index."""
    reply = await sessions.begin_operation(SESSION, Claim("run"), intent)
    start = reply.record.journal_length
    end = LaneAtRest(start + num_tokens, 0, "", start, range(start + 1, start + num_tokens + 1))
    assert (await sessions.end(SESSION, Claim("run"), end)).outcome == "ended"


async def forget(sessions: SessionStores, record: SessionRecord = SESSION) -> None:
    """An operation after which a part of the history is nowhere but in its lane."""
    await sessions.begin_operation(record, Claim("forget"), GENERATE)
    assert (await sessions.extend_journal(record, Claim("forget"), 0, [1, 2, 3], 2)).outcome == "extended"
    assert (await sessions.end(record, Claim("forget"), LaneAtRest(3, 30, "0-3", 3))).outcome == "ended"


def resumed(reply: Answer[ResumeSession]) -> SessionRecord:
    assert reply.outcome == "resumed"
    return reply.record


def parked(reply: Answer[LoseLane]) -> SessionRecord:
    assert reply.outcome == "parked"
    return reply.record


async def test_an_id_without_a_pool_is_nobodys(sessions: SessionStores) -> None:
    assert await sessions.get(SessionId("nonsense")) is None


async def test_reserve_session(sessions: SessionStores, workers: WorkerStore) -> None:
    one, two, three = (
        replace(SESSION, session_id=SessionId(f"p.{name}"), request_id=name) for name in ("one", "two", "three")
    )
    assert (await sessions.reserve(one, CREATE)).outcome == "reserved"
    duplicate = await sessions.reserve(replace(three, request_id="one"), CREATE)
    assert duplicate.outcome == "duplicate"
    assert (await sessions.reserve(two, CREATE)).outcome == "reserved"
    assert (await sessions.reserve(three, CREATE)).outcome == "full"
    assert (await sessions.reserve(replace(three, incarnation=Incarnation("old")), CREATE)).outcome == "gone"
    assert await ledger(workers) == (200, 0, 2)
    assert await sessions.of_request(POOL, "", "one") == "p.one"
    assert await sessions.of_request(POOL, "", "three") is None
    assert await sessions.get(THREE) is None


async def test_mark_open(sessions: SessionStores, workers: WorkerStore) -> None:
    await sessions.reserve(SESSION, CREATE)
    assert (await fields(sessions)).sink == UNSET
    assert (await sessions.mark_open(SESSION, Claim("other"), 9, 9)).outcome == "gone"
    opened = await sessions.mark_open(SESSION, CREATE, 1, 4)
    assert opened.record == await fields(sessions)
    assert (opened.outcome, opened.record.sink, opened.record.window) == ("open", 1, 4)
    assert (await sessions.mark_open(SESSION, CREATE, 9, 9)).outcome == "gone"
    other = replace(SESSION, session_id=TWO)
    await sessions.reserve(other, CREATE)
    await workers.drop(identity("w", "i"), lapsed_only=False)
    assert (await sessions.mark_open(other, CREATE, 1, 4)).outcome == "gone"


async def test_mark_open_of_a_fork(sessions: SessionStores, workers: WorkerStore) -> None:
    await sessions.reserve(SESSION, CREATE)
    opened = await sessions.mark_open(SESSION, CREATE, 1, 4, LaneState(9, 50, "0-1,5-9"))
    assert (opened.record.history_length, opened.record.kv_live_bytes) == (9, 50)
    assert parse_ranges(opened.record.retained) == [range(1), range(5, 9)]
    assert await ledger(workers) == (100, 50, 1)


FORK = replace(SESSION, session_id=TWO)
LISTED = (
    SNAPSHOT,
    replace(SNAPSHOT, name="p/one-1-2", start=2, length=5),
    replace(SNAPSHOT, name="p/one-1-0-b", length=6),
)


async def heirs(connection: RedisConnection) -> list[str]:
    found: list[str] = await connection.call(lambda redis: redis.zrange(KEYS.heirs, 0, -1))
    return found


async def source_of(sessions: SessionStores, start: int, end: int, listed: Snapshots = ()) -> SessionRecord:
    """A session whose journal holds these history indices, of tokens that are one more."""
    source = await opened(sessions)
    await sessions.begin_operation(source, A, GENERATE)
    await sessions.extend_journal(source, A, 0, range(1, end + 1), end - start)
    await sessions.end(source, A, LaneAtRest(end, 0, "", end))
    await sessions.set_snapshots(await fields(sessions), listed, 0, "store", 0)
    return await fields(sessions)


@pytest.mark.parametrize(
    ("start", "end", "forked_start", "tokens"),
    [
        (0, 5, 0, [1, 2, 3, 4, 5]),
        (2, 5, 2, [3, 4, 5]),
        (0, 7, 0, [1, 2, 3, 4, 5]),
        (2, 7, 2, [3, 4, 5]),
        (4, 7, 4, [5]),
        (5, 7, 5, []),
        (6, 7, 5, []),
    ],
)
async def test_a_fork_has_what_its_sources_journal_still_holds(
    sessions: SessionStores, connection: RedisConnection, start: int, end: int, forked_start: int, tokens: list[int]
) -> None:
    source = await source_of(sessions, start, end)
    assert (source.journal_start, source.journal_length) == (start, end)
    assert (await sessions.reserve(FORK, CREATE, source=source, length=5)).outcome == "reserved"
    assert await journaled(connection, TWO) == tokens
    reply = await sessions.mark_open(FORK, CREATE, 1, 4, LaneState(5, 50, "0-5"), source)
    assert reply.record == await fields(sessions, TWO)
    assert (reply.record.journal_start, reply.record.journal_length) == (forked_start, 5)
    assert (reply.record.history_length, reply.record.kv_live_bytes, reply.record.retained) == (5, 50, "0-5")
    assert reply.record.is_recoverable == (forked_start == 0)
    assert await fields(sessions) == source
    await sessions.begin_operation(source, B, GENERATE)
    await sessions.extend_journal(source, B, end, [99], 100)
    assert await journaled(connection, TWO) == tokens
    assert not await heirs(connection)


@pytest.mark.parametrize(
    ("start", "length", "names"),
    [(2, 4, ["-1-0"]), (5, 5, ["-1-0", "-1-2"]), (5, 7, ["-1-0", "-1-2", "-1-0-b"]), (3, 4, [])],
)
async def test_a_fork_inherits_the_snapshots_up_to_where_it_begins(
    sessions: SessionStores, connection: RedisConnection, start: int, length: int, names: list[str]
) -> None:
    """None where the journal does not reach back to them."""
    source = await source_of(sessions, start, 7, LISTED)
    await sessions.reserve(FORK, CREATE, source=source, length=length)
    record = await fields(sessions, TWO)
    inherited = tuple(each for each in LISTED if each.name.removeprefix("p/one") in names)
    assert parse(record.inherited) == inherited
    assert (record.snapshots, record.inherited_store) == ("", "store" if names else "")
    assert record.is_recoverable == bool(names)
    assert await heirs(connection) == sorted(f"p/one{name}|p.two" for name in names)
    found = await sessions.heirs(POOL, ["p/one-1-0", "p/one-1-2", "p/one"])
    assert found == {each.name: "p.two" for each in inherited[:2]}


@pytest.mark.parametrize(
    ("store", "length", "names", "found_in"),
    [
        ("store", 7, ["p/zero-1-0", "p/one-1-0-b"], "store"),
        ("another", 7, ["p/one-1-0-b"], "another"),
        ("another", 5, ["p/zero-1-0"], "store"),
    ],
)
async def test_a_fork_of_a_fork_inherits_what_that_has(
    sessions: SessionStores, connection: RedisConnection, store: str, length: int, names: list[str], found_in: str
) -> None:
    """Of two stores only what is in the one of the newest."""
    await source_of(sessions, 2, 7)
    inherited = replace(SNAPSHOT, name="p/zero-1-0", length=3)
    changes = {"inherited": text((inherited,)), "inherited_store": "store"}
    await connection.call(lambda redis: redis.hset(KEYS.session(SESSION.session_id), mapping=changes))
    before = await fields(sessions)
    await sessions.set_snapshots(before, (LISTED[2],), 0, store, 0, (inherited,))
    await sessions.reserve(FORK, CREATE, source=await fields(sessions), length=length)
    record = await fields(sessions, TWO)
    assert ([each.name for each in parse(record.inherited)], record.inherited_store) == (names, found_in)


async def test_a_fork_at_an_earlier_length_is_reserved_only_with_what_was_read(
    sessions: SessionStores, workers: WorkerStore, connection: RedisConnection
) -> None:
    source = await source_of(sessions, 2, 7, LISTED)
    needed = Past(source, 5, b"").needed
    changes: list[dict[str, str | int]]
    changes = [{"snapshots": ""}, {"inherited": text(LISTED)}, {"num_rewinds": 1}, {"journal_start": 3}]
    for fields_then in changes:
        before = {field: getattr(source, field) for field in fields_then}
        await change(connection, **fields_then)
        reply = await sessions.reserve(FORK, CREATE, source=source, length=5, needed=needed)
        assert reply.outcome == "changed"
        await change(connection, **before)
    assert await sessions.get(TWO) is None
    assert await ledger(workers) == (100, 0, 1)
    assert (await sessions.reserve(FORK, CREATE, source=source, length=5, needed=needed)).outcome == "reserved"


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_fork_is_not_reserved_without_the_journal_of_its_source(
    sessions: SessionStores, connection: RedisConnection, *, is_closed: bool
) -> None:
    source = await source_of(sessions, 2, 7, LISTED)
    key = KEYS.session(SESSION.session_id) if is_closed else KEYS.journal(SESSION.session_id)
    await connection.call(lambda redis: redis.delete(key))
    assert (await sessions.reserve(FORK, CREATE, source=source, length=5)).outcome == "changed"
    assert await sessions.get(TWO) is None
    assert not await heirs(connection)


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_fork_whose_source_is_closed_meanwhile_is_not_opened(
    sessions: SessionStores, workers: WorkerStore, connection: RedisConnection, *, is_deleted: bool
) -> None:
    source = await source_of(sessions, 2, 7, LISTED)
    await sessions.reserve(FORK, CREATE, source=source, length=7)
    await sessions.begin_close(source, CLOSE, Cause.REQUEST)
    if is_deleted:
        assert await sessions.delete(source, CLOSE, 7)
    reply = await sessions.mark_open(FORK, CREATE, 1, 4, LaneState(7, 50), source)
    assert reply.outcome == "gone"
    await sessions.begin_close(FORK, Claim("abandon"), Cause.ABANDON)
    await sessions.delete(FORK, Claim("abandon"), 0)
    assert not await heirs(connection)
    assert not await connection.call(lambda redis: redis.exists(KEYS.journal(TWO)))
    assert await ledger(workers) == ((0, 0, 0) if is_deleted else (100, 0, 1))


async def test_a_fork_whose_source_was_taken_back_meanwhile_is_not_opened(sessions: SessionStores) -> None:
    source = await source_of(sessions, 0, 5)
    await sessions.reserve(FORK, CREATE, source=source, length=5)
    await sessions.begin_operation(source, A, Intent("rewind", {}))
    await sessions.rewind(source, A, 2, (), "", 1)
    await sessions.extend_journal(source, A, 2, [7, 7, 7], 100)
    reply = await sessions.mark_open(FORK, CREATE, 1, 4, LaneState(5, 50), source)
    assert reply.outcome == "gone"


async def test_an_inheritance_is_given_back(sessions: SessionStores, connection: RedisConnection) -> None:
    """With the list that replaces it, with a rewind, and with the end of the session."""
    source = await source_of(sessions, 5, 7, LISTED)
    await sessions.reserve(FORK, CREATE, source=source, length=7)
    await sessions.mark_open(FORK, CREATE, 1, 4, LaneState(7), source)
    fork, own = await fields(sessions, TWO), replace(SNAPSHOT, name="p/two-1-0", length=7)
    assert await sessions.set_snapshots(replace(fork, inherited=""), (own,), 0, "store", 0) == "changed"
    assert len(await heirs(connection)) == 3
    assert await sessions.set_snapshots(fork, (own,), 0, "store", 0, LISTED[:2]) == "set"
    record = await fields(sessions, TWO)
    assert (parse(record.inherited), parse(record.snapshots)) == (LISTED[:2], (own,))
    assert await heirs(connection) == ["p/one-1-0|p.two", "p/one-1-2|p.two"]
    await sessions.begin_operation(record, A, Intent("rewind", {}))
    assert (await sessions.rewind(fork, A, 3, (), "store", 1, LISTED[:1])).outcome == "changed"
    record = await fields(sessions, TWO)
    assert (await sessions.rewind(record, A, 3, (), "store", 1, LISTED[:1])).outcome == "rewound"
    assert parse((await fields(sessions, TWO)).inherited) == LISTED[:1]
    assert await heirs(connection) == ["p/one-1-0|p.two"]
    await sessions.begin_close(record, CLOSE, Cause.REQUEST)
    assert len(await heirs(connection)) == 1
    assert await sessions.delete(record, CLOSE, 3)
    assert not await heirs(connection)
    assert (await fields(sessions)).snapshots == text(LISTED)


async def test_heirs_that_an_older_router_closed_are_forgotten(
    sessions: SessionStores, connection: RedisConnection
) -> None:
    await connection.call(lambda redis: redis.zadd(KEYS.heirs, {"p/one-1-0|p.two": 0, "p/one-1-0|p.three": 0}))
    await sessions.forget_heirs(POOL, {})
    assert await sessions.heirs(POOL, ["p/one-1-0"]) == {"p/one-1-0": "p.three"}
    await sessions.forget_heirs(POOL, {"p/one-1-0": THREE})
    assert await sessions.heirs(POOL, ["p/one-1-0", "p/one"]) == {"p/one-1-0": "p.two"}


async def test_use_source(sessions: SessionStores, hasty: SessionStores, workers: WorkerStore) -> None:
    async def use(store: SessionStores = sessions) -> str:
        return (await store.use_source(SESSION)).outcome

    assert await use() == "missing"
    await sessions.reserve(SESSION, CREATE)
    assert await use() == "missing"
    await sessions.mark_open(SESSION, CREATE, 1, 4)
    assert await use() == "empty"
    await sessions.begin_operation(SESSION, Claim("first"), APPEND)
    await sessions.end(SESSION, Claim("first"), LaneAtRest(9, 50, "", 0, range(9)))
    record = await fields(sessions)
    await asyncio.sleep(0.01)
    assert (await sessions.use_source(SESSION, 8)) == Answer(UseSource.ELSEWHERE, record)
    assert (await sessions.use_source(SESSION, 8, is_reachable=False)) == Answer(UseSource.ELSEWHERE, record)
    assert await sessions.get(SESSION.session_id) == record
    reply = await sessions.use_source(SESSION, 9)
    assert (reply.outcome, reply.record.idle_since_ms > record.idle_since_ms) == ("present", True)
    assert replace(reply.record, idle_since_ms=0) == replace(record, idle_since_ms=0)
    await sessions.begin_operation(SESSION, A, APPEND)
    assert await use() == "busy"
    await sessions.release_operation(SESSION, A)
    await hasty.begin_operation(SESSION, B, APPEND)
    assert await use() == "left"
    await sessions.begin_operation(SESSION, C, APPEND)
    await sessions.fail(SESSION, C, "inv1")
    assert await use() == "failed"
    await sessions.begin_close(SESSION, CLOSE, Cause.REQUEST)
    assert await use() == "missing"
    await sessions.delete(SESSION, CLOSE, 0)
    await opened(sessions)
    await workers.drop(identity("w", "i"), lapsed_only=False)
    assert await use() == "left"


async def test_a_source_whose_lane_has_not_all_of_its_history_is_left(
    sessions: SessionStores, workers: WorkerStore
) -> None:
    await opened(sessions)
    await sessions.begin_operation(SESSION, A, APPEND)
    await sessions.extend_journal(SESSION, A, 0, [1, 2, 3], 100)
    await sessions.end(SESSION, A, LaneAtRest(2, 20, "0-2", 3))
    behind = await fields(sessions)
    assert (behind.history_length, behind.journal_length) == (2, 3)
    for boundary in (None, 2, 3):
        assert (await sessions.use_source(SESSION, boundary)).outcome == "left"
    assert await fields(sessions) == behind
    await workers.report_lanes(identity("w", "i"), [Lane(SESSION.session_id, FIRST, 3, 30, "0-3")])
    assert (await sessions.use_source(SESSION)).outcome == "present"
    await workers.report_lanes(identity("w", "i"), [Lane(SESSION.session_id, FIRST, 4, 40, "0-4")])
    # Nobody generates: what the lane holds is none of its history.
    assert (await sessions.use_source(SESSION)).outcome == "present"


async def test_use_of_a_source_that_needs_no_lane(
    sessions: SessionStores, connection: RedisConnection, workers: WorkerStore
) -> None:
    async def use(known: SessionRecord = SESSION) -> Answer[UseSource]:
        return await sessions.use_source(known, 3, is_reachable=True)

    assert (await use()).outcome == "missing"
    await opened(sessions)
    await run(sessions, 9)
    before, expires_at = await fields(sessions), await score(connection, KEYS.expiry)
    await asyncio.sleep(0.01)
    reply = await use()
    assert reply == Answer(UseSource.PRESENT, await fields(sessions))
    assert replace(reply.record, idle_since_ms=0) == replace(before, idle_since_ms=0)
    assert reply.record.idle_since_ms > before.idle_since_ms
    assert await score(connection, KEYS.idle) == reply.record.idle_since_ms
    assert await score(connection, KEYS.expiry) == reply.record.idle_since_ms + SESSION.ttl_ms > (expires_at or 0)
    await sessions.begin_operation(SESSION, A, APPEND)
    busy, expires_at = await fields(sessions), await score(connection, KEYS.expiry)
    assert await use() == Answer(UseSource.PRESENT, busy)
    assert (await score(connection, KEYS.expiry), await score(connection, KEYS.idle)) == (expires_at, None)
    await sessions.release_operation(SESSION, A)
    await workers.drop(identity("w", "i"), lapsed_only=False)
    await sessions.lose_all([busy], RETENTION)
    parked_until = await score(connection, KEYS.expiry)
    assert await use() == Answer(UseSource.MOVED, await fields(sessions))
    reply = await use(await fields(sessions))
    assert (reply.outcome, reply.record.state) == ("present", State.PARKED)
    assert (await score(connection, KEYS.expiry), await score(connection, KEYS.idle)) == (parked_until, None)


async def test_no_use_of_a_source_that_is_lost(sessions: SessionStores, workers: WorkerStore) -> None:
    record = await opened(sessions)
    await forget(sessions, record)
    await workers.drop(identity("w", "i"), lapsed_only=False)
    for is_reachable in (True, False):
        assert (await sessions.use_source(SESSION, 2, is_reachable=is_reachable)).outcome == "lost"


@pytest.mark.parametrize(
    ("length", "tokens"),
    [(0, []), (1, []), (2, []), (3, [3]), (5, [3, 4, 5]), (7, [3, 4, 5, 6, 7]), (8, [3, 4, 5, 6, 7])],
)
async def test_read_past(sessions: SessionStores, connection: RedisConnection, length: int, tokens: list[int]) -> None:
    assert await sessions.past(SESSION, length) is None
    source = await opened(sessions)
    await sessions.begin_operation(source, A, GENERATE)
    await sessions.extend_journal(source, A, 0, range(1, 8), 5)
    await connection.call(lambda redis: redis.script_flush())
    found = await sessions.past(SESSION, length)
    digest = extended_digest(EMPTY_HISTORY, range(1, length + 1)) if 2 <= length <= 7 else None
    assert found == (await fields(sessions), pack(tokens), digest)


async def test_the_digests_of_a_history_are_those_of_its_tokens_whatever_is_done_to_its_journal(
    sessions: SessionStores, connection: RedisConnection
) -> None:
    draw, history, start = random.Random(11), list[int](), 0
    await opened(sessions)
    await sessions.begin_operation(SESSION, A, GENERATE)
    for _ in range(150):
        kind = draw.choice(("extend", "extend", "again", "retract", "rewind", "trim", "old extends", "old trims"))
        new = [draw.randrange(1 << 32) for _ in range(draw.randrange(20))]
        before = await fields(sessions)
        length = draw.randint(start, len(history))
        match kind:
            case "extend":
                reply = await sessions.extend_journal(SESSION, A, len(history), new, 1000)
                history += new
                assert int(reply.digest, 16) == extended_digest(EMPTY_HISTORY, history)
            case "again":
                await sessions.extend_journal(SESSION, A, length, [*history[length:], *new], 1000)
                history += new
            case "retract":
                await sessions.retract(SESSION, A, length)
                del history[length:]
            case "rewind":
                await sessions.rewind(before, A, length, (), "", 1)
                del history[length:]
            case "trim":
                start = max(start, length - 3)
                await sessions.extend_journal(SESSION, A, len(history), [], len(history) - start)
            case "old extends":
                await connection.commands([("APPEND", KEYS.journal(SESSION.session_id), pack(new))])
                history += new
                await change(connection, journal_length=len(history))
            case "old trims":
                start = max(start, length - 3)
                await connection.commands([("SET", KEYS.journal(SESSION.session_id), pack(history[start:]))])
                await change(connection, journal_start=start)
        found = await sessions.past(SESSION, len(history))
        assert found is not None
        assert found[2] == extended_digest(EMPTY_HISTORY, history)
        past = Past(found[0], len(history), found[1], found[2])
        assert not past.is_damaged
    assert start > 0


async def test_an_older_router_that_takes_a_history_back_leaves_no_digest(
    sessions: SessionStores, connection: RedisConnection
) -> None:
    await opened(sessions)
    await run(sessions, 5)
    await sessions.begin_operation(SESSION, A, GENERATE)
    await sessions.extend_journal(SESSION, A, 5, range(100, 120), 10)
    await change(connection, journal_length=20, num_rewinds=1)
    await connection.call(lambda redis: redis.set(KEYS.journal(SESSION.session_id), pack([7] * 5)))
    found = await sessions.past(SESSION, 20)
    assert found is not None
    assert found[2] is None
    # It is known again from what the lane says.
    digest = extended_digest(EMPTY_HISTORY, range(20))
    end = LaneAtRest(20, 0, "", 20, history_digest=digest)
    assert (await sessions.end(SESSION, A, end)).outcome == "ended"
    assert (await fields(sessions)).digest_at(20) == digest


async def test_a_journal_that_was_evicted_begins_where_the_history_ends(
    sessions: SessionStores, connection: RedisConnection
) -> None:
    await opened(sessions)
    await run(sessions, 5)
    before = await fields(sessions)
    assert before.is_recoverable
    await connection.call(lambda redis: redis.delete(KEYS.journal(SESSION.session_id)))
    begun = await sessions.begin_operation(SESSION, A, GENERATE)
    assert begun.outcome == "begun"
    await sessions.extend_journal(SESSION, A, 5, [6, 7], 1000)
    assert await journaled(connection) == [6, 7]
    record = await fields(sessions)
    assert (record.journal_start, record.journal_length, record.is_recoverable) == (5, 7, False)
    assert record.digest_at(5) == before.digest_at(5) is not None
    assert (await sessions.lose_lane(record, A)).outcome == "lost"


async def test_renew_opening(sessions: SessionStores, connection: RedisConnection, hasty: SessionStores) -> None:
    await hasty.reserve(SESSION, CREATE)
    assert await sessions.renew_opening(SESSION, Claim("other")) == "gone"
    lapsed = await score(connection, KEYS.expiry)
    assert await sessions.renew_opening(SESSION, CREATE) == "renewed"
    lease = await connection.call(lambda redis: redis.hget(KEYS.operation(SESSION.session_id), "lease_until_ms"))
    assert await score(connection, KEYS.expiry) == float(lease) > (lapsed or 0) + 10_000
    assert (await sessions.begin_close(SESSION, CLOSE, Cause.EXPIRY)).outcome == "kept"


async def test_share_session(sessions: SessionStores, workers: WorkerStore) -> None:
    assert (await sessions.share(SESSION)).outcome == "missing"
    await sessions.reserve(SESSION, CREATE)
    opening = await sessions.share(SESSION)
    assert (opening.outcome, opening.record.state, opening.record.shared) == ("shared", State.OPENING, False)
    await sessions.mark_open(SESSION, CREATE, 1, 4)
    opened_now = await sessions.share(SESSION)
    assert (opened_now.record.state, opened_now.record.shared) == (State.OPEN, True)
    await sessions.begin_close(SESSION, CLOSE, Cause.REQUEST)
    assert (await sessions.share(SESSION)).outcome == "missing"
    await sessions.delete(SESSION, CLOSE, 0)
    gone = await opened(sessions)
    forgotten = await opened(sessions, replace(SESSION, session_id=TWO))
    await forget(sessions, forgotten)
    await workers.drop(identity("w", "i"), lapsed_only=False)
    assert await sessions.lose_all([gone, forgotten], RETENTION) == ["parked", "lost"]
    parked_now = await sessions.share(gone)
    assert (parked_now.record.state, parked_now.record.shared) == (State.PARKED, True)
    assert (await sessions.share(forgotten)).outcome == "missing"


async def test_begin_operation(sessions: SessionStores, hasty: SessionStores, workers: WorkerStore) -> None:
    async def begin(store: SessionStores, claim: Claim) -> str:
        return (await store.begin_operation(SESSION, claim, APPEND)).outcome

    assert await begin(sessions, A) == "missing"
    await sessions.reserve(SESSION, CREATE)
    assert await begin(sessions, A) == "missing"
    await sessions.mark_open(SESSION, CREATE, 1, 4)
    assert await begin(hasty, A) == "begun"
    assert await begin(sessions, B) == "recover"
    assert await begin(sessions, C) == "busy"
    assert (await sessions.end(SESSION, B, LaneAtRest(3, 30, "0-3", 0, [1, 2, 3]))).outcome == "ended"
    assert (await fields(sessions)).append_end == 3
    assert await begin(sessions, Claim("d")) == "begun"
    await sessions.fail(SESSION, Claim("d"), "inv1")
    assert await begin(sessions, Claim("e")) == "failed"
    await sessions.begin_close(SESSION, CLOSE, Cause.REQUEST)
    assert await begin(sessions, Claim("f")) == "missing"
    other = replace(SESSION, session_id=TWO)
    await opened(sessions, other)
    await forget(sessions, other)
    await workers.drop(identity("w", "i"), lapsed_only=False)
    assert (await sessions.begin_operation(other, Claim("g"), GENERATE)).outcome == "lost"
    assert await sessions.lose_all([other], RETENTION) == ["lost"]
    assert (await sessions.begin_operation(other, Claim("g"), GENERATE)).outcome == "lost"


async def test_a_session_whose_lane_is_gone_begins_parked_where_it_can_be_resumed(
    sessions: SessionStores, hasty: SessionStores, workers: WorkerStore, connection: RedisConnection
) -> None:
    await opened(sessions)
    await run(sessions, 3)
    idle_since_ms = (await fields(sessions)).idle_since_ms
    await workers.drop(identity("w", "i"), lapsed_only=False)
    reply = await sessions.begin_operation(SESSION, A, APPEND)
    assert (reply.outcome, reply.record) == ("parked", await fields(sessions))
    assert reply.record.state is State.OPEN
    assert (await sessions.begin_operation(SESSION, B, APPEND)).outcome == "busy"
    assert await sessions.renew_operation(SESSION, A) == "renewed"
    assert await sessions.release_operation(SESSION, A)
    assert await sessions.lose_all([SESSION], RETENTION) == ["parked"]
    record = await fields(sessions)
    kept_until = await score(connection, KEYS.expiry)
    assert kept_until == record.idle_since_ms + RETENTION.parked_ms
    await workers.join(replace(WORKER, incarnation=Incarnation("new")))
    assert await sessions.begin_operation(SESSION, C, APPEND) == Answer(BeginOperation.MOVED, record)
    reply = await sessions.begin_operation(record, C, APPEND)
    begun = replace(record, operation_number=3, operation_id="c", operation_start=record.journal_length)
    assert (reply.outcome, reply.record) == ("parked", begun)
    assert (await sessions.begin_operation(record, Claim("d"), APPEND)).outcome == "busy"
    assert await sessions.release_operation(record, C)
    assert await score(connection, KEYS.idle) is None  # it has no lane that somebody could want
    assert await score(connection, KEYS.expiry) == kept_until  # for longer than its own time-out
    assert record.idle_since_ms >= idle_since_ms
    assert (await hasty.begin_operation(record, Claim("e"), APPEND)).outcome == "parked"
    assert (await sessions.begin_operation(record, Claim("f"), APPEND)).outcome == "recover"


async def test_a_session_that_is_in_snapshots_begins_parked_though_its_journal_was_trimmed(
    sessions: SessionStores, workers: WorkerStore
) -> None:
    await opened(sessions)
    await forget(sessions)
    await sessions.set_snapshots(await fields(sessions), (SNAPSHOT,), 0, "store", 0)
    await workers.drop(identity("w", "i"), lapsed_only=False)
    assert (await sessions.begin_operation(SESSION, A, GENERATE)).outcome == "parked"


async def test_who_takes_an_operation_over_has_a_claim_of_its_own(
    sessions: SessionStores, hasty: SessionStores, connection: RedisConnection
) -> None:
    async def operation() -> list[str]:
        names = ("op_id", "claim", "kind", "start_length", "append_end")
        values: list[str] = await connection.call(lambda redis: redis.hmget(KEYS.operation(SESSION.session_id), *names))
        return values

    await opened(sessions)
    await run(sessions, 2)
    await hasty.begin_operation(SESSION, A, APPEND)
    assert await operation() == ["a", "a", "append", "2", "5"]
    assert (await sessions.begin_operation(SESSION, B, GENERATE)).outcome == "recover"
    assert await operation() == ["a", "b", "append", "2", "5"]
    assert (await sessions.extend_journal(SESSION, A, 2, [3, 4, 5], 100)).outcome == "gone"
    assert (await sessions.extend_journal(SESSION, B, 2, [3, 4, 5], 100)).outcome == "extended"
    record = await fields(sessions)
    assert (record.append_start, record.append_end, record.append_digest) == (2, 5, "digest")


async def test_a_lapsed_operation_is_not_taken_over_in_the_grace_period(
    connection: RedisConnection, sessions: SessionStores, hasty: SessionStores
) -> None:
    patient = SessionStores(connection, grace_seconds=60)
    await opened(sessions)
    await hasty.begin_operation(SESSION, A, GENERATE)
    assert (await patient.begin_operation(SESSION, B, GENERATE)).outcome == "busy"


async def test_the_latest_operation_can_be_gone_on_with(sessions: SessionStores, connection: RedisConnection) -> None:
    async def latest() -> tuple[str, int, int]:
        record = await fields(sessions)
        return record.operation_id, record.operation_start, record.operation_seed

    async def go_on(claim: Claim, op_id: str) -> str:
        return (
            await sessions.begin_operation(SESSION, claim, replace(GENERATE, seed=8, op_id=op_id, may_begin=False))
        ).outcome

    await opened(sessions)
    assert await go_on(Claim("r"), "a") == "unknown"
    await run(sessions, 2, APPEND)
    await sessions.begin_operation(SESSION, A, replace(GENERATE, seed=7))
    assert await latest() == ("a", 2, 7)
    await sessions.end(SESSION, A, LaneAtRest(5, 50, "0-5", 2, [3, 4, 5]))
    before = await fields(sessions)
    assert await go_on(Claim("r"), "run") == "unknown"
    assert await fields(sessions) == before
    for number in range(2):
        assert await go_on(Claim(f"r{number}"), "a") == "begun"
        assert await latest() == ("a", 2, 7)
        operation = await connection.call(lambda redis: redis.hgetall(KEYS.operation(SESSION.session_id)))
        assert (operation["op_id"], operation["claim"], operation["start_length"]) == ("a", f"r{number}", "5")
        assert await sessions.release_operation(SESSION, Claim(f"r{number}"))
    assert (await sessions.begin_operation(SESSION, Claim("f"), Intent("fork", {}))).outcome == "begun"
    assert await latest() == ("a", 2, 7)
    await sessions.release_operation(SESSION, Claim("f"))
    assert await go_on(Claim("r"), "a") == "begun"
    await sessions.release_operation(SESSION, Claim("r"))
    await run(sessions, 1, APPEND)
    assert await latest() == ("run", 5, 0)
    assert await go_on(Claim("r"), "a") == "unknown"


async def test_who_goes_on_with_a_running_operation_takes_it_over_at_once(
    connection: RedisConnection, sessions: SessionStores
) -> None:
    patient = SessionStores(connection, grace_seconds=60)
    await opened(sessions)
    await sessions.begin_operation(SESSION, A, GENERATE)
    await sessions.extend_journal(SESSION, A, 0, [1], 100)
    assert (
        await patient.begin_operation(SESSION, B, replace(GENERATE, op_id="other", may_begin=False))
    ).outcome == "busy"
    assert (
        await patient.begin_operation(SESSION, B, replace(GENERATE, op_id="a", may_begin=False))
    ).outcome == "recover"
    assert (await sessions.extend_journal(SESSION, A, 1, [2], 100)).outcome == "gone"
    assert (await sessions.end(SESSION, B, LaneAtRest(2, 20, "0-2", 1, [2]))).outcome == "ended"
    assert (
        await sessions.begin_operation(SESSION, B, replace(GENERATE, op_id="a", may_begin=False))
    ).outcome == "begun"
    assert (await patient.begin_operation(SESSION, C, replace(GENERATE, op_id="b", may_begin=False))).outcome == "busy"
    assert (
        await patient.begin_operation(SESSION, C, replace(GENERATE, op_id="a", may_begin=False))
    ).outcome == "recover"


async def test_an_operation_is_gone_on_with_although_the_tokens_are_used_up(sessions: SessionStores) -> None:
    await opened(sessions)
    await sessions.begin_operation(SESSION, A, GENERATE, 1)
    await sessions.end(SESSION, A, LaneAtRest(9, 90, "0-9", 0, range(9)))
    assert (await sessions.begin_operation(SESSION, B, GENERATE, 1)).outcome == "quota"
    assert (
        await sessions.begin_operation(SESSION, B, replace(GENERATE, op_id="a", may_begin=False), 1)
    ).outcome == "begun"


async def test_renew_operation(sessions: SessionStores, hasty: SessionStores, connection: RedisConnection) -> None:
    await opened(sessions)
    assert await sessions.renew_operation(SESSION, A) == "gone"
    await hasty.begin_operation(SESSION, A, GENERATE)
    assert await sessions.renew_operation(SESSION, A) == "renewed"
    assert await sessions.renew_operation(SESSION, B) == "gone"
    assert (await sessions.begin_operation(SESSION, B, GENERATE)).outcome == "busy"


async def test_end_operation(sessions: SessionStores, workers: WorkerStore, connection: RedisConnection) -> None:
    await opened(sessions)
    at_three = LaneAtRest(3, 30, "0-3", 0, [1, 2, 3])
    assert (await sessions.end(SESSION, A, at_three)).outcome == "gone"
    await sessions.begin_operation(SESSION, A, APPEND)
    assert (await sessions.end(replace(SESSION, epoch=Epoch(2)), A, at_three)).outcome == "gone"
    assert await journaled(connection) == []
    assert (await sessions.end(SESSION, A, at_three)).outcome == "ended"
    record = await fields(sessions)
    assert (record.history_length, record.kv_live_bytes, record.retained) == (3, 30, "0-3")
    assert (record.journal_start, record.journal_length) == (0, 3)
    assert (record.append_start, record.append_end, record.append_digest) == (0, 3, "digest")
    assert await ledger(workers) == (100, 30, 1)
    await sessions.begin_operation(SESSION, B, APPEND)
    before = await fields(sessions)
    assert (await sessions.end(SESSION, B, LaneAtRest(2, 20, "0-2", 3, [4]))).outcome == "regressed"
    assert (await fields(sessions), await journaled(connection)) == (before, [1, 2, 3])
    at_seven = LaneAtRest(7, 50, "0-1,3-7", 3, [4, 5, 6, 7])
    assert (await sessions.end(SESSION, B, at_seven)).outcome == "ended"
    assert await journaled(connection) == [1, 2, 3, 4, 5, 6, 7]
    record = await fields(sessions)
    assert (record.append_end, record.retained, record.lane.num_dropped_tokens) == (3, "0-1,3-7", 2)
    assert await ledger(workers) == (100, 50, 1)


async def test_a_lane_with_tokens_that_nobody_knows_ends_no_operation(
    sessions: SessionStores, connection: RedisConnection
) -> None:
    async def end(end: LaneAtRest) -> str:
        return (await sessions.end(SESSION, A, end)).outcome

    await opened(sessions)
    await sessions.begin_operation(SESSION, A, GENERATE)
    await sessions.extend_journal(SESSION, A, 0, [1, 2], 100)
    before = await fields(sessions)
    assert await end(LaneAtRest(3, 30, "0-3", 2)) == "unknown"
    assert await end(LaneAtRest(4, 40, "0-4", 2, [3])) == "unknown"
    assert await end(LaneAtRest(2, 20, "0-2", 3)) == "unknown"  # what is at 2 is missing
    assert await end(LaneAtRest(4, 40, "0-4", 3, [4])) == "unknown"
    assert (await fields(sessions), await journaled(connection)) == (before, [1, 2])
    assert await sessions.renew_operation(SESSION, A) == "renewed"
    assert await end(LaneAtRest(4, 40, "0-4", 2, [3, 4])) == "ended"
    assert await journaled(connection) == [1, 2, 3, 4]


async def test_the_end_of_an_operation_journals_what_is_not_journaled_yet(
    sessions: SessionStores, workers: WorkerStore, connection: RedisConnection
) -> None:
    await opened(sessions)
    await sessions.begin_operation(SESSION, A, GENERATE)
    await sessions.extend_journal(SESSION, A, 0, [1, 2], 100)
    assert (await sessions.end(SESSION, A, LaneAtRest(2, 20, "0-2", 1, [2, 3]))).outcome == "ended"
    record = await fields(sessions)
    assert (record.history_length, record.journal_length, record.kv_live_bytes) == (2, 3, 20)
    assert await journaled(connection) == [1, 2, 3]
    assert await ledger(workers) == (100, 20, 1)
    await sessions.begin_operation(SESSION, B, APPEND)
    assert await connection.call(lambda redis: redis.hget(KEYS.operation(SESSION.session_id), "start_length")) == "3"


async def test_the_last_four_turns_are_remembered(sessions: SessionStores) -> None:
    await opened(sessions)
    await run(sessions, 3, APPEND)
    assert (await fields(sessions)).turn_boundaries == []
    boundaries = []
    for num_tokens in (1, 2, 10, 1, 1):
        await run(sessions, num_tokens)
        boundaries.append((await fields(sessions)).journal_length)
        await run(sessions, 0)  # no turn
        await run(sessions, 5, APPEND)
        assert (await fields(sessions)).turn_boundaries == boundaries[-4:]
    assert len(boundaries) == 5


async def test_extend_journal(sessions: SessionStores, connection: RedisConnection) -> None:
    async def extend(claim: Claim, start: int, token_ids: Sequence[int], epoch: Epoch = FIRST) -> tuple[str, int]:
        reply = await sessions.extend_journal(replace(SESSION, epoch=epoch), claim, start, token_ids, 100)
        return reply.outcome, reply.length

    await opened(sessions)
    assert await extend(A, 0, [1]) == ("gone", 0)
    await sessions.begin_operation(SESSION, A, GENERATE)
    before = await fields(sessions)
    assert await extend(B, 0, [1]) == ("gone", 0)
    assert await extend(A, 0, [1], epoch=Epoch(2)) == ("gone", 0)
    assert await extend(A, 1, [1]) == ("gone", 0)  # what comes before is missing
    assert (await fields(sessions), await journaled(connection)) == (before, [])
    assert await extend(A, 0, [70_000, 2]) == ("extended", 2)
    assert await extend(A, 0, [70_000, 2]) == ("extended", 2)
    assert await extend(A, 1, [2, 3, 2**32 - 1]) == ("extended", 4)
    assert await extend(A, 4, []) == ("extended", 4)
    assert await extend(A, 1, [2]) == ("extended", 4)  # its router does not know how far an attempt has come
    assert await extend(A, 5, [6]) == ("gone", 0)
    assert await journaled(connection) == [70_000, 2, 3, 2**32 - 1]
    record = await fields(sessions)
    assert record == replace(before, journal_length=4, journal_digests=record.journal_digests)
    assert await sessions.journal(record, 1, 3) == [2, 3]
    assert await sessions.journal(record, 2, 9) == [3, 2**32 - 1]
    assert await sessions.journal(record, 4, 9) == await sessions.journal(record, 2, 2) == []
    await sessions.begin_close(SESSION, CLOSE, Cause.REQUEST)
    assert await extend(A, 4, [5]) == ("gone", 0)


async def test_an_append_is_remembered_with_its_last_token(sessions: SessionStores) -> None:
    async def append() -> tuple[int, int, str]:
        record = await fields(sessions)
        return record.append_start, record.append_end, record.append_digest

    await opened(sessions)
    await run(sessions, 4)
    await sessions.begin_operation(SESSION, A, APPEND)
    await sessions.extend_journal(SESSION, A, 4, [5, 6], 100)
    assert await append() == (-1, -1, "")
    await sessions.extend_journal(SESSION, A, 6, [7], 100)
    assert await append() == (4, 7, "digest")
    await sessions.extend_journal(SESSION, A, 6, [7], 1)
    assert await append() == (4, 7, "digest")
    await sessions.end(SESSION, A, LaneAtRest(7, 0, "", 7))
    await run(sessions, 1)
    assert await append() == (4, 7, "digest")
    await sessions.begin_operation(SESSION, B, replace(APPEND, digest="another"))
    await sessions.extend_journal(SESSION, B, 8, [9, 10, 11, 12], 100)
    assert await append() == (4, 7, "digest")


async def test_the_oldest_tokens_leave_a_journal_that_is_too_long(
    sessions: SessionStores, connection: RedisConnection
) -> None:
    async def extend(start: int, token_ids: Sequence[int], max_tokens: int) -> tuple[int, int, list[int]]:
        reply = await sessions.extend_journal(SESSION, A, start, token_ids, max_tokens)
        assert reply.outcome == "extended"
        return reply.length, (await fields(sessions)).journal_start, await journaled(connection)

    await opened(sessions)
    await sessions.begin_operation(SESSION, A, GENERATE)
    assert await extend(0, [1, 2, 3], 3) == (3, 0, [1, 2, 3])
    assert await extend(3, [4, 5], 3) == (5, 2, [3, 4, 5])
    assert await extend(3, [4, 5], 3) == (5, 2, [3, 4, 5])
    assert await extend(5, [6], 100) == (6, 2, [3, 4, 5, 6])
    record = await fields(sessions)
    assert await sessions.journal(record, 3, 5) == [4, 5]
    assert await extend(6, [7, 8, 9, 10], 3) == (10, 7, [8, 9, 10])
    assert await extend(6, [7, 8, 9, 10], 3) == (10, 7, [8, 9, 10])
    assert not (await fields(sessions)).is_recoverable


async def test_retract_journal(sessions: SessionStores, connection: RedisConnection) -> None:
    async def retract(claim: Claim, length: int, epoch: Epoch = FIRST) -> bool:
        return await sessions.retract(replace(SESSION, epoch=epoch), claim, length)

    await opened(sessions)
    await run(sessions, 2)
    assert not await retract(A, 1)
    await sessions.begin_operation(SESSION, A, APPEND)
    await sessions.extend_journal(SESSION, A, 2, [3, 4, 5], 4)
    before = await fields(sessions)
    assert (before.journal_start, before.journal_length, before.append_end) == (1, 5, 5)
    assert not await retract(B, 3)
    assert not await retract(A, 3, epoch=Epoch(2))
    assert (await fields(sessions), await journaled(connection)) == (before, [2, 3, 4, 5])
    for _ in range(2):
        assert await retract(A, 2)
        record = await fields(sessions)
        assert (record.journal_start, record.journal_length, record.append_end) == (1, 2, -1)
        assert await journaled(connection) == [2]
    assert (await sessions.extend_journal(SESSION, A, 2, [6, 7, 8], 100)).length == 5
    assert await journaled(connection) == [2, 6, 7, 8]
    assert (await fields(sessions)).append_end == 5
    assert await retract(A, 1)
    assert ((await fields(sessions)).journal_start, (await fields(sessions)).journal_length) == (1, 1)
    assert not await connection.call(lambda redis: redis.exists(KEYS.journal(SESSION.session_id)))


async def test_lose_lane(sessions: SessionStores, workers: WorkerStore, connection: RedisConnection) -> None:
    owned = replace(SESSION, tenant="a", key_id="k")
    await opened(sessions, owned)
    assert (await sessions.lose_lane(owned, A)).outcome == "gone"
    await sessions.begin_operation(owned, A, GENERATE)
    before = await fields(sessions)
    await sessions.extend_journal(owned, A, 0, [1, 2], 100)
    await workers.report_lanes(identity("w", "i"), [Lane(SESSION.session_id, FIRST, 3, 30, "0-3")])
    assert (await sessions.lose_lane(owned, B)).outcome == "gone"
    assert await ledger(workers) == (100, 30, 1)
    record = parked(await sessions.lose_lane(owned, A))
    assert record == await fields(sessions)
    assert record == replace(
        before,
        journal_digests=record.journal_digests,
        state=State.PARKED,
        worker_id=WorkerId(""),
        incarnation=Incarnation(""),
        address="",
        reserved_bytes=0,
        history_length=2,
        journal_length=2,
    )
    assert await journaled(connection) == [1, 2]
    assert await ledger(workers) == (0, 0, 0)
    assert await connection.call(lambda redis: redis.hgetall(KEYS.usage)) == {}
    assert await sessions.of_incarnation(POOL, WORKER.incarnation, 10) == []
    assert await sessions.renew_operation(record, A) == "renewed"
    assert parked(await sessions.lose_lane(record, A)) == record
    assert await ledger(workers) == (0, 0, 0)


async def test_what_a_session_lacks_in_its_journal_must_be_in_a_snapshot_to_park_it(
    sessions: SessionStores, workers: WorkerStore
) -> None:
    await opened(sessions)
    await forget(sessions)
    await sessions.begin_operation(SESSION, A, GENERATE)
    before = await fields(sessions)
    assert (await sessions.lose_lane(SESSION, A)).outcome == "lost"
    assert await fields(sessions) == before
    assert await ledger(workers) == (100, 30, 1)
    assert await sessions.set_snapshots(before, (SNAPSHOT,), 0, "store", 0) == "set"
    record = parked(await sessions.lose_lane(SESSION, A))
    assert (record.journal_start, record.history_length, record.snapshot_store) == (1, 3, "store")
    assert await ledger(workers) == (0, 0, 0)


async def test_resume_session(sessions: SessionStores, workers: WorkerStore, connection: RedisConnection) -> None:
    async def resume(record: SessionRecord, claim: Claim = A, worker: WorkerRecord = OTHER_WORKER) -> str:
        return (await sessions.resume(record, claim, worker, "")).outcome

    owned = await opened(sessions, replace(SESSION, tenant="a", key_id="k"))
    await sessions.begin_operation(owned, A, GENERATE)
    await sessions.extend_journal(owned, A, 0, [1, 2], 100)
    await workers.report_lanes(identity("w", "i"), [Lane(SESSION.session_id, FIRST, 2, 20, "0-2")])
    assert await resume(owned) == "gone"  # it has a lane
    laneless = parked(await sessions.lose_lane(owned, A))
    assert await resume(laneless) == "away"
    await workers.join(OTHER_WORKER)
    assert await resume(laneless, worker=replace(OTHER_WORKER, incarnation=Incarnation("old"))) == "away"
    assert await resume(laneless, B) == "gone"
    blocking = replace(
        SESSION,
        session_id=TWO,
        worker_id=OTHER_WORKER.worker_id,
        incarnation=OTHER_WORKER.incarnation,
        reserved_bytes=131,
    )
    await opened(sessions, blocking)
    assert await resume(laneless) == "full"
    assert await fields(sessions) == laneless
    assert await ledger(workers, "v") == (131, 0, 1)
    await sessions.begin_close(blocking, CLOSE, Cause.REQUEST)
    await sessions.delete(blocking, CLOSE, 0)
    await opened(sessions, replace(blocking, reserved_bytes=130))
    await connection.call(lambda redis: redis.zadd(KEYS.expiry, {"p.one": 1}))
    record = resumed(await sessions.resume(laneless, A, OTHER_WORKER, ""))
    assert record == await fields(sessions)
    assert 0 < (await score(connection, KEYS.expiry) or 0) - await connection.now_ms() <= record.ttl_ms
    assert (record.state, record.reserved_bytes) == (State.OPEN, 70)
    assert record.epoch > 1
    assert (record.worker_id, record.incarnation, record.address) == ("v", "j", "127.0.0.1:2")
    assert (record.journal_length, record.kv_live_bytes, record.retained) == (2, 0, "")
    assert await ledger(workers) == (0, 0, 0)
    assert await ledger(workers, "v") == (200, 0, 2)
    assert (await sessions.usage(POOL))["a"] == TenantUsage(1, 70, 0)
    assert await connection.call(lambda redis: redis.hget(KEYS.usage, "key:k|sessions")) == "1"
    assert "p.one" in [found.session_id for found in await sessions.of_incarnation(POOL, OTHER_WORKER.incarnation, 10)]
    assert await resume(laneless) == "gone"  # it has a lane
    assert await ledger(workers, "v") == (200, 0, 2)


async def test_a_session_goes_on_with_its_new_lane_and_not_with_the_one_before(
    sessions: SessionStores, workers: WorkerStore, connection: RedisConnection
) -> None:
    await workers.join(OTHER_WORKER)
    before = await opened(sessions)
    await sessions.begin_operation(before, A, GENERATE)
    await sessions.extend_journal(before, A, 0, [1, 2], 100)
    record = resumed(await sessions.resume(parked(await sessions.lose_lane(before, A)), A, OTHER_WORKER, ""))
    late = Lane(SESSION.session_id, FIRST, 2, 20, "0-2")
    assert await workers.report_lanes(identity("w", "i"), [late]) == [late]
    assert (await sessions.extend_journal(before, A, 2, [3], 100)).outcome == "gone"
    assert not await sessions.retract(before, A, 0)
    assert (await sessions.end(before, A, LaneAtRest(2, 20, "0-2", 2))).outcome == "gone"
    assert await sessions.set_snapshots(before, (SNAPSHOT,), 0, "store", 0) == "gone"
    assert (await sessions.extend_journal(record, A, 2, [3], 100)).outcome == "extended"
    assert (await sessions.end(record, A, LaneAtRest(3, 30, "0-3", 3))).outcome == "ended"
    assert await ledger(workers, "v") == (70, 30, 1)
    assert await ledger(workers) == (0, 0, 0)
    assert (await sessions.begin_operation(record, B, GENERATE)).outcome == "begun"
    await sessions.release_operation(record, B)
    await workers.drop(identity("v", "j"), lapsed_only=False)
    assert await sessions.lose_all(await sessions.of_incarnation(POOL, OTHER_WORKER.incarnation, 10), RETENTION) == [
        "parked"
    ]
    assert (await fields(sessions)).history_length == 3


async def test_set_snapshots(sessions: SessionStores, connection: RedisConnection) -> None:
    async def put(*snapshots: StoredSnapshot, before: SessionRecord, start: int = 0) -> str:
        return await sessions.set_snapshots(before, snapshots, start, "store", 0)

    later = replace(SNAPSHOT, name="p/one-1-2", start=2, length=5)
    assert await put(SNAPSHOT, before=SESSION) == "gone"
    await sessions.reserve(SESSION, CREATE)
    assert await put(SNAPSHOT, before=SESSION) == "gone"
    await sessions.mark_open(SESSION, CREATE, 1, 4)
    await run(sessions, 4)
    record = await fields(sessions)
    assert await put(SNAPSHOT, before=replace(record, epoch=Epoch(2))) == "gone"
    # Nobody generates: that is none of its history.
    assert await put(SNAPSHOT, later, before=record) == "unlike"
    now_digest, other = extended_digest(EMPTY_HISTORY, range(1, 5)), replace(SNAPSHOT, length=4, history_digest=5)
    assert await put(other, before=record) == "unlike"
    await connection.call(lambda redis: redis.hset(KEYS.operation(SESSION.session_id), "claim", "a"))
    assert await put(SNAPSHOT, later, before=record) == "ahead"
    assert await put(later, before=record) == "ahead"
    await connection.call(lambda redis: redis.delete(KEYS.operation(SESSION.session_id)))
    assert await fields(sessions) == record
    assert record.digest_at(4) == now_digest
    assert await put(SNAPSHOT, before=record) == "set"
    first = await fields(sessions)
    assert first == replace(record, snapshots=text((SNAPSHOT,)), snapshot_store="store")
    assert await put(SNAPSHOT, before=record) == "changed"
    await run(sessions, 1)
    assert await put(SNAPSHOT, later, before=first) == "changed"
    assert await put(SNAPSHOT, later, before=await fields(sessions)) == "set"
    second = await fields(sessions)
    assert second.snapshots == text((SNAPSHOT, later))
    assert await put(before=first) == "changed"
    assert await fields(sessions) == second
    assert await put(before=second) == "set"
    assert (await fields(sessions)).snapshots == ""
    assert await journaled(connection) == [1, 2, 3, 4, 5]
    await sessions.begin_operation(SESSION, A, GENERATE)
    await sessions.fail(SESSION, A, "inv1")
    assert await put(SNAPSHOT, before=await fields(sessions)) == "gone"


async def test_snapshots_make_a_part_of_the_journal_superfluous(
    sessions: SessionStores, connection: RedisConnection
) -> None:
    async def trim(start: int) -> tuple[int, list[int]]:
        reply = await sessions.set_snapshots(await fields(sessions), (SNAPSHOT,), start, "store", 0)
        assert reply == "set"
        record = await fields(sessions)
        assert record.journal_length == len(await journaled(connection)) + record.journal_start
        return record.journal_start, await journaled(connection)

    await opened(sessions)
    await run(sessions, 4)
    assert await trim(3) == (0, [1, 2, 3, 4])  # the latest operation's may still be asked for
    await run(sessions, 2)
    assert await trim(2) == (2, [3, 4, 5, 6])
    assert await trim(1) == (2, [3, 4, 5, 6])
    assert await trim(5) == (4, [5, 6])
    await sessions.begin_operation(SESSION, A, GENERATE)
    await sessions.extend_journal(SESSION, A, 6, [7], 100)
    assert await trim(7) == (6, [7])
    await sessions.release_operation(SESSION, A)
    await run(sessions, 0)
    assert await trim(7) == (7, [])
    assert not await connection.call(lambda redis: redis.exists(KEYS.journal(SESSION.session_id)))


async def test_a_parked_session_gets_the_snapshot_that_was_being_written(
    sessions: SessionStores, workers: WorkerStore
) -> None:
    await opened(sessions)
    await run(sessions, 4)
    await workers.drop(identity("w", "i"), lapsed_only=False)
    assert await sessions.lose_all([SESSION], RETENTION) == ["parked"]
    assert await sessions.set_snapshots(await fields(sessions), (SNAPSHOT,), 0, "store", 0) == "set"
    assert (await fields(sessions)).snapshots == text((SNAPSHOT,))


async def test_release_operation(sessions: SessionStores, connection: RedisConnection) -> None:
    before = await opened(sessions)
    assert not await sessions.release_operation(SESSION, A)
    await asyncio.sleep(0.01)  # so that the begin's time is another
    await sessions.begin_operation(SESSION, A, GENERATE)
    assert not await sessions.release_operation(SESSION, B)
    assert await sessions.release_operation(SESSION, A)
    assert await fields(sessions) == replace(before, operation_number=1)
    expires_at = await connection.call(lambda redis: redis.zscore(KEYS.expiry, SESSION.session_id))
    assert expires_at == before.idle_since_ms + before.ttl_ms


@pytest.mark.parametrize("invariant", ["inv1", "inv2"])
async def test_fail_session(
    sessions: SessionStores, workers: WorkerStore, connection: RedisConnection, invariant: str
) -> None:
    await opened(sessions)
    assert await sessions.fail(SESSION, A, invariant) == "gone"
    await workers.report_lanes(identity("w", "i"), [Lane(SESSION.session_id, FIRST, 3, 30, "0-3")])
    await sessions.begin_operation(SESSION, A, GENERATE)
    await sessions.extend_journal(SESSION, A, 0, [1, 2], 100)
    assert await sessions.fail(SESSION, A, invariant) == "failed"
    assert not await connection.call(lambda redis: redis.exists(KEYS.journal(SESSION.session_id)))
    assert await sessions.of_incarnation(POOL, WORKER.incarnation, 10) == []
    record = await fields(sessions)
    assert (record.state, record.reserved_bytes, record.kv_live_bytes) == (State.FAILED, 0, 0)
    assert record.retained == ""
    assert getattr(record, f"{invariant}_violations") == 1
    assert record.inv1_violations + record.inv2_violations == 1
    assert await ledger(workers) == (0, 0, 0)


async def test_lose_session(sessions: SessionStores, workers: WorkerStore, connection: RedisConnection) -> None:
    await opened(sessions, replace(SESSION, request_id="r"))
    record = await fields(sessions)
    assert await sessions.lose_all([record], RETENTION) == ["alive"]
    await WorkerSweep(sessions, workers, RETENTION).sweep(
        POOL, WORKER.incarnation
    )  # ends, and takes nothing from a living incarnation
    assert (await fields(sessions)).state is State.OPEN
    await workers.report_lanes(identity("w", "i"), [Lane(SESSION.session_id, FIRST, 3, 30, "0-3")])
    await sessions.begin_operation(record, A, GENERATE)
    await sessions.extend_journal(record, A, 0, [1, 2, 3], 2)
    before = await fields(sessions)
    assert await sessions.lose(record, B, RETENTION, 3, [4]) == "gone"
    assert (await fields(sessions), await journaled(connection)) == (before, [2, 3])
    assert await sessions.lose(record, A, RETENTION, 3, [4]) == "lost"
    assert await ledger(workers) == (0, 0, 0)
    assert await sessions.of_incarnation(POOL, WORKER.incarnation, 10) == []
    record = await fields(sessions)
    assert (record.state, record.kv_live_bytes, record.retained) == (State.LOST, 0, "")
    assert await sessions.of_request(POOL, "", "r") is None
    assert not await connection.call(
        lambda redis: redis.exists(KEYS.journal(SESSION.session_id), KEYS.operation(SESSION.session_id))
    )
    assert 0 < (await score(connection, KEYS.expiry) or 0) - await connection.now_ms() <= RETENTION.lost_ms
    other = await opened(sessions, replace(SESSION, session_id=TWO))
    await forget(sessions, other)
    closing = await opened(sessions, replace(SESSION, session_id=THREE))
    await sessions.begin_close(closing, CLOSE, Cause.REQUEST)
    await workers.drop(identity("w", "i"), lapsed_only=False)
    assert await sessions.lose_all([record, other, closing], RETENTION) == ["gone", "lost", "gone"]
    assert not await sessions.of_incarnation(POOL, WORKER.incarnation, 10)


async def test_a_session_that_can_be_had_again_is_parked(
    sessions: SessionStores, workers: WorkerStore, connection: RedisConnection
) -> None:
    before = await opened(sessions, replace(SESSION, request_id="r", tenant="a", key_id="k"))
    await workers.report_lanes(identity("w", "i"), [Lane(SESSION.session_id, FIRST, 3, 30, "0-3")])
    await sessions.begin_operation(before, A, GENERATE)
    await sessions.extend_journal(before, A, 0, [1, 2], 100)
    await asyncio.sleep(0.01)
    assert await sessions.lose(before, B, RETENTION, 2, [3]) == "gone"
    assert await sessions.lose(before, A, RETENTION, 1, [2, 3, 4, 5]) == "parked"
    record = await fields(sessions)
    assert record == replace(
        before,
        journal_digests=record.journal_digests,
        state=State.PARKED,
        operation_number=1,
        worker_id=WorkerId(""),
        incarnation=Incarnation(""),
        address="",
        reserved_bytes=0,
        history_length=5,
        journal_length=5,
        operation_id="a",
        idle_since_ms=record.idle_since_ms,
    )
    assert record.idle_since_ms > before.idle_since_ms
    assert await journaled(connection) == [1, 2, 3, 4, 5]
    assert await ledger(workers) == (0, 0, 0)
    assert await connection.call(lambda redis: redis.hgetall(KEYS.usage)) == {}
    assert await sessions.of_request(POOL, "a", "r") == "p.one"
    assert await score(connection, KEYS.expiry) == record.idle_since_ms + RETENTION.parked_ms
    assert await score(connection, KEYS.idle) is None
    assert await sessions.renew_operation(before, A) == "gone"
    assert await sessions.lose(before, A, RETENTION, 5, [6]) == "gone"
    assert await sessions.lose_all([before, record], RETENTION) == ["gone", "gone"]
    assert (await fields(sessions), await journaled(connection)) == (record, [1, 2, 3, 4, 5])


async def test_a_session_that_finds_no_other_lane_is_parked_once_more(
    sessions: SessionStores, workers: WorkerStore, connection: RedisConnection
) -> None:
    await opened(sessions)
    await sessions.begin_operation(SESSION, A, GENERATE)
    await sessions.extend_journal(SESSION, A, 0, [1, 2], 100)
    record = parked(await sessions.lose_lane(SESSION, A))
    assert await sessions.lose(record, B, RETENTION, 2, ()) == "gone"
    assert await sessions.lose(record, A, RETENTION, 2, [3]) == "parked"
    assert await journaled(connection) == [1, 2, 3]
    assert (await fields(sessions)).history_length == 3
    assert await ledger(workers) == (0, 0, 0)
    assert await sessions.renew_operation(record, A) == "gone"


@pytest.mark.parametrize("state", [State.CLOSING, State.FAILED, State.LOST])
async def test_what_is_over_is_not_lost(sessions: SessionStores, connection: RedisConnection, state: State) -> None:
    await opened(sessions)
    await sessions.begin_operation(SESSION, A, GENERATE)
    await connection.call(lambda redis: redis.hset(KEYS.session(SESSION.session_id), "state", state.value))
    before = await fields(sessions)
    assert await sessions.lose(SESSION, A, RETENTION, 0, [1]) == "gone"
    assert (await fields(sessions), await journaled(connection)) == (before, [])


async def test_a_session_that_was_not_open_yet_is_lost(sessions: SessionStores, workers: WorkerStore) -> None:
    await sessions.reserve(SESSION, CREATE)
    other = replace(SESSION, session_id=TWO)
    await sessions.reserve(other, CREATE)
    assert await sessions.lose(SESSION, CREATE, RETENTION, 0, ()) == "lost"
    assert await ledger(workers) == (100, 0, 1)
    await workers.drop(identity("w", "i"), lapsed_only=False)
    assert await sessions.lose_all([other], RETENTION) == ["lost"]


async def test_a_sweep_leaves_a_session_to_its_running_operation(
    sessions: SessionStores, hasty: SessionStores, workers: WorkerStore, connection: RedisConnection
) -> None:
    other = await opened(sessions, replace(SESSION, session_id=TWO))
    await opened(sessions)
    await sessions.begin_operation(SESSION, A, GENERATE)
    await sessions.extend_journal(SESSION, A, 0, [1], 100)
    await hasty.begin_operation(other, B, GENERATE)  # of a router that vanished
    before = await fields(sessions)
    await workers.drop(identity("w", "i"), lapsed_only=False)
    await WorkerSweep(sessions, workers, RETENTION).sweep(POOL, WORKER.incarnation)
    assert (await fields(sessions), await journaled(connection)) == (before, [1])
    assert await sessions.lose_all([SESSION], RETENTION) == ["busy"]
    assert await sessions.renew_operation(SESSION, A) == "renewed"
    assert (await fields(sessions, TWO)).state is State.PARKED
    assert await sessions.renew_operation(other, B) == "gone"
    assert await workers.lost(POOL) == []
    assert await sessions.of_incarnation(POOL, WORKER.incarnation, 10) == []
    assert await sessions.lose(SESSION, A, RETENTION, 1, [2]) == "parked"
    assert await journaled(connection) == [1, 2]


async def test_begin_close(sessions: SessionStores, hasty: SessionStores, connection: RedisConnection) -> None:
    async def close(cause: Cause, store: SessionStores = sessions) -> str:
        return (await store.begin_close(SESSION, CLOSE, cause)).outcome

    async def expire() -> None:
        await connection.call(lambda redis: redis.zadd(KEYS.expiry, {SESSION.session_id: 1}))

    await expire()
    assert await close(Cause.EXPIRY) == "missing"
    assert not await connection.call(lambda redis: redis.exists(KEYS.expiry))
    await sessions.reserve(SESSION, CREATE)
    assert await close(Cause.REQUEST) == "missing"
    await sessions.mark_open(SESSION, CREATE, 1, 4)
    assert await close(Cause.EXPIRY) == "kept"
    await sessions.begin_operation(SESSION, A, GENERATE)
    await expire()
    assert await close(Cause.EXPIRY) == "kept"
    await sessions.release_operation(SESSION, A)
    await sessions.share(SESSION)
    assert await close(Cause.ABANDON) == "kept"
    assert await close(Cause.REQUEST, hasty) == "claimed"
    assert await close(Cause.REQUEST) == "missing"
    assert await close(Cause.EXPIRY, hasty) == "claimed"
    await connection.call(lambda redis: redis.zrem(KEYS.expiry, SESSION.session_id))
    assert await close(Cause.EXPIRY) == "kept"


async def test_abandon_takes_a_session_that_is_still_being_opened(sessions: SessionStores) -> None:
    await sessions.reserve(replace(SESSION, request_id="r"), CREATE)
    claimed = await sessions.begin_close(replace(SESSION, request_id="r"), CLOSE, Cause.ABANDON)
    assert claimed.outcome == "claimed"
    assert claimed.record.state is State.OPENING
    assert await sessions.of_request(POOL, "", "r") is None


async def test_delete_session(sessions: SessionStores, workers: WorkerStore, connection: RedisConnection) -> None:
    await opened(sessions)
    await run(sessions, 3)
    assert not await sessions.delete(SESSION, CLOSE, 0)
    await sessions.begin_close(SESSION, CLOSE, Cause.REQUEST)
    assert not await sessions.delete(SESSION, Claim("other"), 0)
    assert await sessions.delete(SESSION, CLOSE, 0)
    assert not await sessions.delete(SESSION, CLOSE, 0)
    assert await ledger(workers) == (0, 0, 0)
    keys = await connection.call(lambda redis: redis.keys("*"))
    assert set(keys) == {"kakeya:pools", KEYS.workers, KEYS.worker(WORKER.worker_id)}


async def test_a_parked_session_is_closed_without_a_lane(
    sessions: SessionStores, workers: WorkerStore, connection: RedisConnection
) -> None:
    before = await opened(sessions)
    await run(sessions, 3)
    await sessions.begin_operation(before, A, GENERATE)
    await sessions.lose(before, A, RETENTION, 3, ())
    other = await opened(sessions, replace(SESSION, session_id=TWO))
    await sessions.begin_operation(other, A, GENERATE)
    await sessions.lose(other, A, RETENTION, 0, ())
    third = await opened(sessions, replace(SESSION, session_id=THREE))
    assert (await sessions.begin_close(other, CLOSE, Cause.EXPIRY)).outcome == "kept"
    for record in (before, await fields(sessions, TWO)):
        claimed = (await sessions.begin_close(record, CLOSE, Cause.REQUEST)).record
        assert claimed is not None
        assert (claimed.state, claimed.holds_lane) == (State.PARKED, False)
        assert await sessions.delete(claimed, CLOSE, 3)
        assert await ledger(workers) == (100, 0, 1)
    await sessions.begin_close(third, CLOSE, Cause.REQUEST)
    await sessions.delete(third, CLOSE, 0)
    keys = await connection.call(lambda redis: redis.keys("*"))
    assert set(keys) == {"kakeya:pools", KEYS.workers, KEYS.worker(WORKER.worker_id)}


async def test_join_worker(workers: WorkerStore) -> None:
    assert await workers.join(WORKER) == "renewed"
    assert await workers.join(replace(WORKER, incarnation=OTHER_WORKER.incarnation)) == "replaced"
    assert await workers.lost(POOL) == ["i"]
    assert await workers.join(WORKER) == "sweeping"
    await workers.swept(POOL, WORKER.incarnation)
    assert await workers.join(WORKER) == "replaced"


async def test_heartbeat(workers: WorkerStore) -> None:
    assert await workers.heartbeat(identity("w", "i"), kv_live_bytes=70, rss_bytes=5_000_000_000)
    assert not await workers.heartbeat(identity("w", "j"), kv_live_bytes=80, rss_bytes=1)
    assert not await workers.heartbeat(identity("x", "i"), kv_live_bytes=80, rss_bytes=1)
    (worker,) = await workers.workers(POOL)
    assert (worker.reported_kv_live_bytes, worker.rss_bytes) == (70, 5_000_000_000)


async def test_report_lane(sessions: SessionStores, workers: WorkerStore) -> None:
    async def orphan(epoch: Epoch = FIRST, length: int = 0, incarnation: str = "i") -> bool:
        lane = Lane(SESSION.session_id, epoch, length, length * 10, f"0-{length}")
        return await workers.report_lanes(identity("w", incarnation), [lane]) == [lane]

    assert await orphan()
    await sessions.reserve(SESSION, CREATE)
    assert not await orphan(length=9)
    await sessions.mark_open(SESSION, CREATE, 1, 4)
    assert not await orphan(length=3)
    assert (await fields(sessions)).history_length == 0  # nobody generates: that is none of its history
    await sessions.begin_operation(SESSION, A, APPEND)
    assert not await orphan(length=3)
    assert (await fields(sessions)).history_length == 0  # nor does who appends: all of that would be journaled
    await sessions.release_operation(SESSION, A)
    await sessions.begin_operation(SESSION, A, GENERATE)
    assert not await orphan(length=3)
    assert not await orphan(length=2)
    record = await fields(sessions)
    assert (record.history_length, record.kv_live_bytes, record.retained) == (3, 30, "0-3")
    assert await ledger(workers) == (100, 30, 1)
    assert await orphan(epoch=Epoch(2))
    assert await orphan(incarnation="j")
    await sessions.fail(SESSION, A, "inv1")
    assert await orphan(length=3)


async def test_a_report_after_the_worker_was_dropped_touches_no_ledger(
    sessions: SessionStores, workers: WorkerStore
) -> None:
    await opened(sessions)
    await workers.drop(identity("w", "i"), lapsed_only=False)
    await workers.join(replace(WORKER, incarnation=OTHER_WORKER.incarnation))
    assert await workers.report_lanes(identity("w", "i"), [Lane(SESSION.session_id, FIRST, 3, 30, "0-3")]) == []
    assert await ledger(workers) == (0, 0, 0)


async def test_drop_worker(connection: RedisConnection, workers: WorkerStore) -> None:
    assert not await workers.drop(identity("w", "j"), lapsed_only=False)
    assert not await workers.drop(identity("w", "i"), lapsed_only=True)
    await connection.call(lambda redis: redis.zadd(KEYS.workers, {"w": 1}))
    assert [worker.worker_id for worker in await workers.lapsed(POOL, 10)] == ["w"]
    assert await workers.drop(identity("w", "i"), lapsed_only=True)
    assert not await workers.drop(identity("w", "i"), lapsed_only=False)
    assert (await workers.workers(POOL), await workers.lost(POOL)) == ([], ["i"])


async def test_announce_router(connection: RedisConnection) -> None:
    brief, lasting = WorkerStore(connection, 0), WorkerStore(connection, 10)
    assert await brief.announce_router("a:1") == []
    assert await lasting.announce_router("b:1") == ["b:1"]
    assert await lasting.announce_router("c:1") == ["b:1", "c:1"]
    await lasting.forget_router("b:1")
    assert await lasting.routers() == ["c:1"]


async def test_scripts_survive_a_flush_of_the_script_cache(
    connection: RedisConnection, sessions: SessionStores, workers: WorkerStore
) -> None:
    await opened(sessions)
    await connection.call(lambda redis: redis.script_flush())
    assert (await sessions.begin_operation(SESSION, A, GENERATE)).outcome == "begun"
    await connection.call(lambda redis: redis.script_flush())
    assert await workers.report_lanes(identity("w", "i"), [Lane(SESSION.session_id, FIRST, 0, 0, "")]) == []


async def test_a_lack_of_connections_is_no_outage(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kakeya_router.store.connection._MAX_CONNECTIONS", 1)
    busy = RedisConnection(redis_url, timeout_seconds=0.2)
    await busy.now_ms()
    pool = busy._redis.connection_pool
    taken = await pool.get_connection()
    with pytest.raises(StoreUnavailable):
        await busy.now_ms()
    assert busy.answers_for(0)
    await pool.release(taken)
    await busy.now_ms()
    await busy.aclose()


async def test_an_operation_may_end_without_knowing_what_was_journaled(
    sessions: SessionStores, connection: RedisConnection
) -> None:
    """Its client left in the middle of the write: the tokens are in the history, and the lane lacks them."""
    await opened(sessions)
    await sessions.begin_operation(SESSION, A, APPEND)
    await sessions.extend_journal(SESSION, A, 0, [1, 2, 3], 100)
    assert (await sessions.end(SESSION, A, LaneAtRest(0, 0, "", 0))).outcome == "ended"
    record = await fields(sessions)
    assert (record.history_length, record.journal_length) == (0, 3)
    assert await journaled(connection) == [1, 2, 3]


async def test_rewind_session(sessions: SessionStores, workers: WorkerStore, connection: RedisConnection) -> None:
    async def rewound(length: int, snapshots: Snapshots = (), *, known: SessionRecord, parks: bool = False) -> str:
        reply = await sessions.rewind(known, A, length, snapshots, "store", None if parks else 1)
        assert reply.record == (await fields(sessions) if reply.outcome != "gone" else known)
        return reply.outcome

    await opened(sessions)
    for length in (2, 4, 6):
        await run(sessions, 2)
        assert (await fields(sessions)).turn_boundaries[-1] == length
    begun = await fields(sessions)
    later = replace(SNAPSHOT, name="p/one-1-2", start=2, length=5)
    await sessions.set_snapshots(begun, (SNAPSHOT, later), 0, "store", 0)
    assert await rewound(4, known=await fields(sessions)) == "gone"
    await sessions.begin_operation(SESSION, A, Intent("rewind", {}))
    record = await fields(sessions)
    assert await rewound(4, known=replace(record, epoch=Epoch(2))) == "gone"
    assert await rewound(4, known=begun) == "changed"
    assert (await fields(sessions), await journaled(connection)) == (record, [1, 2, 3, 4, 5, 6])
    assert await rewound(4, (SNAPSHOT,), known=record) == "rewound"
    record = await fields(sessions)
    assert (record.history_length, record.journal_length, record.boundaries) == (4, 4, "2,4")
    assert (record.snapshots, record.operation_start, record.state) == (text((SNAPSHOT,)), 4, State.OPEN)
    assert await journaled(connection) == [1, 2, 3, 4]
    # What was begun before holds other tokens than those that come now.
    await sessions.extend_journal(SESSION, A, 4, [7, 7], 100)
    assert await sessions.set_snapshots(record, (SNAPSHOT, later), 0, "store", 0) == "gone"
    assert await sessions.set_snapshots(record, (SNAPSHOT, later), 0, "store", 1) == "set"
    assert await rewound(2, (SNAPSHOT,), known=await fields(sessions), parks=True) == "rewound"
    record = await fields(sessions)
    assert (record.state, record.history_length, record.journal_length) == (State.PARKED, 2, 2)
    assert await ledger(workers) == (0, 0, 0)
    assert (await sessions.begin_operation(record, B, APPEND)).outcome == "busy"


async def test_a_lane_behind_its_history_is_only_taken_where_a_rewind_began(sessions: SessionStores) -> None:
    await opened(sessions)
    await run(sessions, 4)
    for kind, outcome in (("append", "regressed"), ("rewind", "unknown")):
        await sessions.begin_operation(SESSION, A, Intent(kind, {}))
        assert (await sessions.end(SESSION, A, LaneAtRest(3, 30, "0-3", 4))).outcome == outcome
        await sessions.release_operation(SESSION, A)


# Parking


async def park(
    sessions: SessionStores, *, record: SessionRecord = SESSION, by_journal: bool = True
) -> Answer[ParkSession]:
    return await sessions.park(record, RETENTION.parked_ms, by_journal=by_journal)


async def test_a_parked_session_gives_its_lane_back_and_stays_as_idle_as_it_was(
    sessions: SessionStores, workers: WorkerStore, connection: RedisConnection
) -> None:
    await opened(sessions)
    await run(sessions, 3)
    before = await fields(sessions)
    reply = await park(sessions)
    assert (reply.outcome, reply.record) == ("parked", before)
    assert await fields(sessions) == replace(before.without_lane(), incarnation=Incarnation(""), address="")
    assert await ledger(workers) == (0, 0, 0)
    assert await sessions.usage(POOL) == {}
    assert await sessions.of_incarnation(POOL, WORKER.incarnation, 9) == []
    assert await score(connection, KEYS.idle) is None
    kept_until = await score(connection, KEYS.expiry)
    assert kept_until is not None
    assert (
        before.idle_since_ms + RETENTION.parked_ms <= kept_until <= before.idle_since_ms + RETENTION.parked_ms + 9_000
    )
    record = await fields(sessions)
    again = await park(sessions, record=record)
    assert (again.outcome, again.record) == ("no_lane", record)
    assert await score(connection, KEYS.expiry) == kept_until
    assert (await sessions.begin_operation(record, A, GENERATE)).outcome == "parked"
    assert (await park(sessions, record=record)).outcome == "busy"


async def test_parking_shortens_no_life(sessions: SessionStores, connection: RedisConnection) -> None:
    patient = replace(SESSION, ttl_ms=2 * RETENTION.parked_ms)
    opened_at = (await opened(sessions, patient)).idle_since_ms
    assert (await park(sessions)).outcome == "parked"
    assert await score(connection, KEYS.expiry) == opened_at + patient.ttl_ms


async def test_what_cannot_be_parked(sessions: SessionStores, hasty: SessionStores, workers: WorkerStore) -> None:
    assert (await park(sessions)).outcome == "missing"
    await sessions.reserve(SESSION, CREATE)
    assert (await park(sessions)).outcome == "missing"
    await sessions.mark_open(SESSION, CREATE, 1, 4)
    assert (await park(sessions, record=replace(SESSION, epoch=Epoch(2)))).outcome == "changed"
    await sessions.begin_operation(SESSION, A, GENERATE)
    assert (await park(sessions)).outcome == "busy"
    await sessions.release_operation(SESSION, A)
    await hasty.begin_operation(SESSION, A, GENERATE)
    careful = SessionStores(
        sessions._redis, "router", operation_lease_seconds=1, lane_lease_seconds=1, grace_seconds=3600
    )
    assert (await park(careful)).outcome == "busy"
    assert (await park(sessions)).outcome == "left"
    await sessions.begin_operation(SESSION, B, GENERATE)
    await sessions.end(SESSION, B, LaneAtRest(0, 0, "", 0))
    await forget(sessions)
    assert (await park(sessions)).outcome == "unrecoverable"
    assert (await park(sessions, by_journal=False)).outcome == "unrecoverable"
    await sessions.set_snapshots(await fields(sessions), (SNAPSHOT,), 1, "store", 0)
    assert (await park(sessions)).outcome == "unrecoverable"  # the store does not work now
    assert (await fields(sessions)).state is State.OPEN
    assert await ledger(workers) == (100, 30, 1)
    assert (await park(sessions, by_journal=False)).outcome == "parked"
    await sessions.begin_close(await fields(sessions), CLOSE, Cause.REQUEST)
    assert (await park(sessions)).outcome == "missing"


async def test_a_failed_session_cannot_be_parked(sessions: SessionStores) -> None:
    await opened(sessions)
    await sessions.begin_operation(SESSION, A, GENERATE)
    await sessions.fail(SESSION, A, "inv1")
    reply = await park(sessions)
    assert (reply.outcome, reply.record) == ("failed", await fields(sessions))


@pytest.mark.parametrize("left_behind", [False, True])
async def test_parking_one_whose_worker_is_gone(
    sessions: SessionStores, hasty: SessionStores, workers: WorkerStore, *, left_behind: bool
) -> None:
    await opened(sessions)
    await run(sessions, 3)
    if left_behind:
        await hasty.begin_operation(SESSION, A, GENERATE)
        assert (await hasty.extend_journal(SESSION, A, 3, [4], 100)).outcome == "extended"
    await workers.drop(identity("w", "i"), lapsed_only=False)
    reply = await park(sessions)
    assert (reply.outcome, reply.record) == ("no_lane", reply.record)
    record = await fields(sessions)
    assert (record.state, record.history_length) == (State.PARKED, 4 if left_behind else 3)
    assert (await sessions.begin_operation(record, B, GENERATE)).outcome == "parked"
    other = replace(SESSION, session_id=TWO, incarnation=Incarnation("new"))
    await workers.join(replace(WORKER, incarnation=Incarnation("new")))
    await opened(sessions, other)
    await forget(sessions, other)
    await workers.drop(identity("w", "new"), lapsed_only=False)
    assert (await park(sessions, record=other)).outcome == "lost"


async def test_parking_for_who_waits_looks_at_idleness_and_fairness(
    sessions: SessionStores, workers: WorkerStore
) -> None:
    await opened(sessions)

    async def for_room(idle_ms: int, wanted_by: str) -> str:
        parked_ms = RETENTION.parked_ms
        return (await sessions.park(SESSION, parked_ms, by_journal=True, idle_ms=idle_ms, wanted_by=wanted_by)).outcome

    assert await for_room(3_600_000, "") == "kept"
    assert await for_room(0, "other") == "kept"
    assert await for_room(0, "") == "parked"


async def test_an_operation_that_only_clears_up_leaves_the_latest_one_on_record(sessions: SessionStores) -> None:
    await opened(sessions)
    await run(sessions, 3)
    latest = await fields(sessions)
    for kind in ("fork", "park"):
        await sessions.begin_operation(SESSION, Claim("tidy"), Intent(kind, {}))
        assert (await fields(sessions)).operation_id == latest.operation_id == "run"
        await sessions.release_operation(SESSION, Claim("tidy"))
        assert (await fields(sessions)).operation_id == "run"


# Draining


async def test_a_draining_worker_gets_no_session(sessions: SessionStores, workers: WorkerStore) -> None:
    await opened(sessions)
    await run(sessions, 3)
    assert (await park(sessions)).outcome == "parked"
    record = await fields(sessions)
    await sessions.begin_operation(record, A, GENERATE)
    other = replace(SESSION, session_id=TWO)
    for by_heartbeat in (True, False):
        (worker,) = await workers.workers(POOL)
        assert (worker.draining, worker.has_room) == (False, True)

        async def mark(draining: bool, by_heartbeat: bool = by_heartbeat, worker: WorkerRecord = worker) -> None:
            if by_heartbeat:
                await workers.heartbeat(identity("w", "i"), kv_live_bytes=0, rss_bytes=0, leaving=draining)
            else:
                assert await workers.mark_draining(worker, draining=draining)

        await mark(True)
        (marked,) = await workers.workers(POOL)
        assert (marked.draining, marked.has_room, marked.leaving) == (True, False, by_heartbeat)
        assert (await sessions.reserve(other, CREATE)).outcome == "full"
        assert (await sessions.resume(record, A, worker, "")).outcome == "away"
        if not by_heartbeat:  # what an operator wants is nothing that a heartbeat changes
            await workers.heartbeat(identity("w", "i"), kv_live_bytes=0, rss_bytes=0)
            assert (await sessions.reserve(other, CREATE)).outcome == "full"
        await mark(False)
    assert (await sessions.reserve(other, CREATE)).outcome == "reserved"
    assert (await sessions.resume(record, A, worker, "")).outcome == "resumed"


async def test_only_an_incarnation_that_is_registered_drains(workers: WorkerStore) -> None:
    assert not await workers.mark_draining(replace(WORKER, incarnation=Incarnation("old")), draining=True)
    assert not await workers.mark_draining(replace(WORKER, worker_id=WorkerId("nobody")), draining=True)
    assert await workers.mark_draining(WORKER, draining=True)
    await workers.join(replace(WORKER, incarnation=Incarnation("new")))
    assert not (await workers.workers(POOL))[0].draining


async def test_the_idle_sessions_of_an_incarnation(
    sessions: SessionStores, hasty: SessionStores, workers: WorkerStore
) -> None:
    records = {name: replace(SESSION, session_id=SessionId(f"p.{name}")) for name in ("idle", "busy")}
    for record in records.values():
        await opened(sessions, record)
    await sessions.begin_operation(records["busy"], A, GENERATE)
    assert [record.session_id for record in await sessions.idle_of(POOL, WORKER.incarnation, 9)] == ["p.idle"]
    await sessions.release_operation(records["busy"], A)
    await hasty.begin_operation(records["busy"], B, GENERATE)  # and its router vanished
    assert {record.session_id for record in await sessions.idle_of(POOL, WORKER.incarnation, 9)} == {"p.idle", "p.busy"}
    assert len(await sessions.idle_of(POOL, WORKER.incarnation, 1)) == 1
    await sessions.begin_close(records["idle"], CLOSE, Cause.REQUEST)
    assert [record.session_id for record in await sessions.idle_of(POOL, WORKER.incarnation, 9)] == ["p.busy"]
    assert await sessions.idle_of(POOL, Incarnation("nobody"), 9) == []
