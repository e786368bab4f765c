"""What a tenant and a key may have: never exceeded, charged once, and given back whatever becomes of a session."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from kakeya_router.settings import RouterSettings
from kakeya_router.store.connection import plain
from kakeya_router.store.session_record import Claim, Incarnation, LaneState, PoolName, SessionId, SessionRecord, State
from kakeya_router.store.sessions.session_changes import Cause, Intent, Limits, TimesToLive
from kakeya_router.store.sessions.session_lists import TenantUsage
from kakeya_router.store.sessions.session_store import ExceededQuota
from kakeya_router.workers.worker_sweep import WorkerSweep
from kakeya_shared.errors.tree import QuotaExceeded
from tests.unit.router.admission_stores import (
    KEYS,
    LANE_BYTES,
    OP,
    POOL,
    Stores,
    session_record,
    stores_on,
    worker_record,
)
from tests.unit.router.fake_worker import LANE_BYTES as FAKE_LANE_BYTES
from tests.unit.router.keyed import Keyed, keyed_on
from tests.unit.router.lanes.test_queue import stand
from tests.unit.router.session_stores import LaneAtRest, SessionStores, identity
from tests.unit.router.stack import eventually

ONE = SessionId("p.one")
RUN, CLOSE = Claim("run"), Claim("close")
GENERATE = Intent("generate", {"max_tokens": 3})
RETENTION = TimesToLive(lost_ms=1000, parked_ms=3_600_000)
MINUTE_MS = 60_000


@pytest.fixture
async def stores(redis_url: str) -> AsyncIterator[Stores]:
    async with stores_on(redis_url) as stores:
        await stores.workers.join(worker_record(num_lanes=8))
        yield stores


async def test_usage_is_counted_by_tenant_and_key(stores: Stores) -> None:
    one = await stores.opened("one", "a", key_id="k")
    await stores.opened("two", "a")
    await stores.opened("three")
    await stores.enter("w", "b")
    assert await stores.kept_usage() == {
        "a|sessions": 2,
        "a|bytes": 200,
        "key:k|sessions": 1,
        "|sessions": 1,
        "|bytes": 100,
    }
    assert await stores.sessions.usage(POOL) == {
        "": TenantUsage(1, 100, 0),
        "a": TenantUsage(2, 200, 0),
        "b": TenantUsage(0, 0, 1),
    }
    await stores.close(one)
    assert await stores.kept_usage() == {"a|sessions": 1, "a|bytes": 100, "|sessions": 1, "|bytes": 100}


@pytest.mark.parametrize(
    ("limits", "quota", "limit"),
    [
        (Limits(max_sessions=2), "sessions", "2"),
        (Limits(max_reserved_bytes=299), "reserved_bytes", "299"),
        (Limits(key_max_sessions=2), "key_sessions", "2"),
    ],
)
async def test_a_reservation_beyond_a_quota_is_refused(stores: Stores, limits: Limits, quota: str, limit: str) -> None:
    for name in ("one", "two"):
        assert (await stores.reserve(name, "a", key_id="k", limits=limits)).outcome == "reserved"
    refused = await stores.reserve("three", "a", key_id="k", limits=limits)
    assert (refused.outcome, refused.quota) == ("quota", ExceededQuota(quota, limit))
    entry = await stores.enter("w", "a", key_id="k", limits=limits)
    assert (entry.outcome, entry.quota) == ("quota", refused.quota)
    assert await stores.waiting() == []
    assert (await stores.reserve("other", "b", key_id="l", limits=limits)).outcome == "reserved"


async def test_without_a_key_there_is_no_keys_quota(stores: Stores) -> None:
    limits = Limits(key_max_sessions=1)
    for name in ("one", "two"):
        assert (await stores.reserve(name, limits=limits)).outcome == "reserved"


async def test_a_waiter_over_its_quota_is_out_of_the_line(stores: Stores) -> None:
    await stores.opened("one", "a")
    await stores.enter("w", "a")
    await stores.enter("v", "b")
    limits = Limits(max_sessions=1)
    assert (await stores.reserve("two", "a", waiter_id="w", limits=limits)).outcome == "quota"
    assert await stores.waiting() == ["v"]


async def _churn(stores: Stores, store: SessionStores, draw: random.Random) -> None:
    """One session of somebody's, to an end of its own."""
    tenant = draw.choice(["", "a", "b"])
    record = session_record(f"{draw.random()}", tenant, draw.choice("wv"), key_id=tenant and f"key-{tenant}")
    if (await store.reserve(record, OP)).outcome != "reserved":
        return
    await stores.sessions.mark_open(record, OP, 1, 4)
    if draw.random() < 0.5:
        await stores.sessions.begin_operation(record, RUN, GENERATE)
        # One that has forgotten a token is lost with its lane, else it is parked.
        await stores.sessions.extend_journal(record, RUN, 0, (1, 2, 3), draw.choice([2, 3]))
    match draw.choice(["stay", "close", "fail", "lose", "lose", "move", "claim"]):
        case "close":
            await stores.sessions.begin_close(record, CLOSE, Cause.REQUEST)
            await stores.sessions.delete(record, CLOSE, 3)
            await stores.sessions.delete(record, CLOSE, 3)
        case "fail":
            await stores.sessions.fail(record, RUN, "inv1")
        case "lose":
            await stores.sessions.lose(record, RUN, RETENTION, 3, (4,))
        case "move":
            laneless = (await stores.sessions.lose_lane(record, RUN)).record
            if laneless is not None:
                await stores.sessions.resume(laneless, RUN, worker_record(draw.choice("wv"), 40), "")
        case "claim":
            await stores.sessions.begin_close(record, CLOSE, Cause.REQUEST)


async def _expected(stores: Stores, worker_id: str) -> int:
    records = await stores.sessions.all_of(POOL)
    return sum(record.reserved_bytes for record in records if record.worker_id == worker_id)


async def test_after_any_churn_usage_is_the_sum_over_the_sessions(stores: Stores) -> None:
    await stores.workers.join(worker_record("v", 40))
    await stores.workers.drop(identity("w", "i-w"), lapsed_only=False)
    await stores.workers.swept(POOL, Incarnation("i-w"))
    await stores.workers.join(worker_record("w", 40))
    draw = random.Random(3)
    for _ in range(10):
        await asyncio.gather(*(_churn(stores, stores.sessions, random.Random(draw.random())) for _ in range(12)))
        assert await stores.kept_usage() == await stores.true_usage()
        for worker in await stores.workers.workers(POOL):
            assert worker.reserved_bytes == await _expected(stores, worker.worker_id)
    await stores.workers.drop(identity("w", "i-w"), lapsed_only=False)
    await WorkerSweep(stores.sessions, stores.workers, RETENTION).sweep(POOL, Incarnation("i-w"))
    assert await stores.kept_usage() == await stores.true_usage()
    records = await stores.sessions.all_of(POOL)
    assert {record.state for record in records} >= {State.OPEN, State.PARKED, State.LOST, State.FAILED, State.CLOSING}
    assert any(record.epoch > 1 and record.holds_lane for record in records)
    for record in records:
        await stores.sessions.begin_close(record, Claim("end"), Cause.ABANDON)
        await stores.sessions.delete(record, Claim("end"), 0)
        await stores.sessions.delete(record, CLOSE, 0)  # those that were being closed
    assert await stores.kept_usage() == {}


async def _bucket(stores: Stores, tenant: str = "a") -> tuple[float, int] | None:
    """Tokens spent and the time, by Redis's clock in milliseconds, as of which they are."""
    text = await stores.redis.call(lambda redis: redis.get(KEYS.tokens(tenant)))
    if text is None:
        return None
    spent, at_ms = text.split()
    return float(spent), int(at_ms)


async def _spent(stores: Stores, tenant: str = "a") -> float | None:
    bucket = await _bucket(stores, tenant)
    return None if bucket is None else bucket[0]


def _grown(record: SessionRecord, num_tokens: int) -> LaneAtRest:
    """A lane with so many tokens more, none of which is journaled yet."""
    return LaneAtRest(record.history_length + num_tokens, 0, "", record.journal_length, range(num_tokens))


async def _run(stores: Stores, name: str, num_tokens: int, rate: int) -> str:
    """One operation that makes the history grow."""
    record = await stores.sessions.get(SessionId(f"p.{name}"))
    assert record is not None
    reply = await stores.sessions.begin_operation(record, RUN, GENERATE, rate)
    if reply.outcome == "begun":
        assert (await stores.sessions.end(record, RUN, _grown(record, num_tokens))).outcome == "ended"
    return reply.outcome


async def _turn_back(stores: Stores, milliseconds: int) -> None:
    """Makes the bucket as old as if so much time had passed."""
    bucket = await _bucket(stores)
    assert bucket is not None
    text = f"{bucket[0]!r} {bucket[1] - milliseconds}"
    await stores.redis.call(lambda redis: redis.set(KEYS.tokens("a"), text, keepttl=True))


async def test_tokens_are_charged_when_an_operation_ends_and_come_back_at_the_rate(stores: Stores) -> None:
    rate = 600  # tokens a minute: one in 100 ms
    await stores.opened("one", "a")
    await stores.opened("two", "a")
    assert await _run(stores, "one", 400, rate) == "begun"
    assert await _run(stores, "two", 1000, rate) == "begun"  # into debt: it is not cut off
    spent = await _spent(stores)
    assert spent is not None
    assert 1390 < spent <= 1400
    record = await stores.sessions.get(ONE)
    assert record is not None
    reply = await stores.sessions.begin_operation(record, RUN, GENERATE, rate)
    assert reply.outcome == "quota"
    retry_ms = reply.quota.retry_ms or 0
    assert reply.quota == ExceededQuota("tokens_per_minute", "600", retry_ms)
    assert 79_000 < retry_ms <= 80_001  # 800 too many
    await _turn_back(stores, retry_ms - 1000)
    assert (await stores.sessions.begin_operation(record, RUN, GENERATE, rate)).outcome == "quota"
    await _turn_back(stores, 1000)
    assert (await stores.sessions.begin_operation(record, RUN, GENERATE, rate)).outcome == "begun"
    other = await stores.opened("three", "b")
    assert (await stores.sessions.begin_operation(other, RUN, GENERATE, rate)).outcome == "begun"


async def test_the_retry_is_exact(stores: Stores) -> None:
    """In Redis's own time: at that millisecond the level is above 0, at the one before it is not."""
    rate = MINUTE_MS  # a token a millisecond
    record = await stores.opened("one", "a")
    assert await _run(stores, "one", rate + 10_000, rate) == "begun"
    bucket = await _bucket(stores)
    assert bucket is not None
    at_ms = bucket[1]
    before_ms = await stores.redis.now_ms()
    retry_ms = (await stores.sessions.begin_operation(record, RUN, GENERATE, rate)).quota.retry_ms or 0
    assert before_ms <= at_ms + 10_000 + 1 - retry_ms <= await stores.redis.now_ms()


async def test_a_bucket_holds_a_minute_and_is_forgotten_when_it_is_full(stores: Stores) -> None:
    rate = 6000
    await stores.opened("one", "a")
    await _run(stores, "one", 50, rate)
    lives_ms = await stores.redis.call(lambda redis: redis.pttl(KEYS.tokens("a")))
    assert 0 < lives_ms <= 500
    await _turn_back(stores, 10 * MINUTE_MS)
    await _run(stores, "one", 6000, rate)
    spent = await _spent(stores)
    assert spent is not None
    assert spent <= 6000  # no more than a minute was saved up
    record = await stores.sessions.get(ONE)
    assert record is not None
    await _turn_back(stores, 2)
    assert await _run(stores, "one", 1, rate) == "begun"


async def test_over_a_long_time_the_rate_holds(stores: Stores) -> None:
    rate, used, elapsed_ms = 600, 0, 0
    await stores.opened("one", "a")
    draw = random.Random(5)
    record = await stores.sessions.get(ONE)
    assert record is not None
    for _ in range(100):
        num_tokens = draw.randrange(1, 300)
        reply = await stores.sessions.begin_operation(record, RUN, GENERATE, rate)
        if reply.outcome == "quota":
            await _turn_back(stores, reply.quota.retry_ms or 0)
            elapsed_ms += reply.quota.retry_ms or 0
            continue
        used += num_tokens
        end = _grown(reply.record, num_tokens)
        assert (await stores.sessions.end(record, RUN, end)).outcome == "ended"
    assert used > 5 * rate
    assert abs(used - rate * elapsed_ms / MINUTE_MS - rate) <= 300 + 60  # one operation's debt, and the test's own time


async def test_an_operation_that_is_taken_over_is_charged_once(stores: Stores) -> None:
    hasty = SessionStores(stores.redis, "vanished", operation_lease_ms=-1000, lane_lease_ms=-1000, grace_seconds=0)
    record = await stores.opened("one", "a")
    assert (await hasty.begin_operation(record, Claim("lost"), GENERATE, 600)).outcome == "begun"
    assert (await stores.sessions.begin_operation(record, Claim("mine"), GENERATE, 600)).outcome == "recover"
    assert (await hasty.end(record, Claim("lost"), _grown(record, 100))).outcome == "gone"
    assert (await stores.sessions.end(record, Claim("mine"), _grown(record, 100))).outcome == "ended"
    spent = await _spent(stores)
    assert spent is not None
    assert 99 < spent <= 100
    assert await _run(stores, "one", 0, 600) == "begun"
    assert (await _spent(stores) or 0) <= spent


async def test_an_operation_is_taken_over_also_when_the_tokens_are_used_up(stores: Stores) -> None:
    hasty = SessionStores(stores.redis, "vanished", operation_lease_ms=-1000, lane_lease_ms=-1000, grace_seconds=0)
    record = await stores.opened("one", "a")
    await stores.opened("two", "a")
    assert (await hasty.begin_operation(record, Claim("lost"), GENERATE, 600)).outcome == "begun"
    assert await _run(stores, "two", 700, 600) == "begun"
    assert (await stores.sessions.begin_operation(record, Claim("mine"), GENERATE, 600)).outcome == "recover"


@pytest.mark.parametrize("end", ["opened", "given up"])
async def test_a_new_session_is_charged_for_its_prefill(stores: Stores, end: str) -> None:
    """Also one whose client leaves in the middle, for what its lane has by then."""
    record = session_record("one", "a")
    tokens: dict[str, Any] = {"start_length": 30, "tokens_per_minute": 600}
    assert (await stores.sessions.reserve(record, OP, **tokens)).outcome == "reserved"
    if end == "opened":
        assert (await stores.sessions.mark_open(record, OP, 1, 4, LaneState(730))).outcome == "open"
    else:
        await stores.close(record, 730)
    assert await _spent(stores) == 700
    refused = await stores.sessions.reserve(session_record("two", "a"), OP, **tokens)
    assert (refused.outcome, refused.quota.name, refused.quota.limit) == ("quota", "tokens_per_minute", "600")
    assert 9_000 < (refused.quota.retry_ms or 0) <= 10_001
    assert (await stores.reserve("two", "a")).outcome == "reserved"  # without a prefill
    assert (await stores.sessions.reserve(session_record("three", "b"), OP, **tokens)).outcome == "reserved"


async def test_tokens_that_were_journaled_on_the_way_are_charged_once(stores: Stores) -> None:
    record = await stores.opened("one", "a")
    await stores.sessions.begin_operation(record, RUN, GENERATE, 600)
    await stores.sessions.extend_journal(record, RUN, 0, range(70), 1000)
    assert await _spent(stores) is None
    end = LaneAtRest(90, 0, "", 60, range(60, 100))  # the lane has not come to the last ten
    assert (await stores.sessions.end(record, RUN, end)).outcome == "ended"
    spent = await _spent(stores)
    assert spent is not None
    assert 99 < spent <= 100
    assert await _run(stores, "one", 0, 600) == "begun"
    assert (await _spent(stores) or 0) <= spent


@pytest.mark.parametrize("end", ["close", "reclaim", "fail", "lose", "sweep"])
async def test_an_operation_that_does_not_end_well_is_charged_too(stores: Stores, end: str) -> None:
    record = await stores.opened("one", "a")
    await stores.sessions.begin_operation(record, RUN, GENERATE, 600)
    await stores.sessions.extend_journal(record, RUN, 0, range(40), 1000)
    await stores.redis.call(lambda redis: redis.hset(KEYS.session(ONE), "history_length", 60))
    if end in ("close", "reclaim"):
        await stores.sessions.begin_close(record, CLOSE, Cause.REQUEST)
        if end == "reclaim":
            await stores.redis.call(lambda redis: redis.zadd(KEYS.expiry, {"p.one": 1}))
            await stores.redis.call(lambda redis: redis.hset(KEYS.operation(ONE), "lease_until_ms", 1))
            assert (await stores.sessions.begin_close(record, CLOSE, Cause.EXPIRY)).outcome == "claimed"
        assert await stores.sessions.delete(record, CLOSE, 60)
    elif end == "fail":
        await stores.sessions.extend_journal(record, RUN, 40, range(40, 60), 1000)
        await stores.sessions.fail(record, RUN, "inv1")
    elif end == "lose":
        assert await stores.sessions.lose(record, RUN, RETENTION, 40, range(40, 60)) == "parked"
    else:
        await stores.sessions.extend_journal(record, RUN, 40, range(40, 60), 1000)
        await stores.redis.call(lambda redis: redis.hset(KEYS.operation(ONE), "lease_until_ms", 1))
        await stores.workers.drop(identity("w", "i-w"), lapsed_only=False)
        assert await stores.sessions.lose_all([record], RETENTION) == ["parked"]
    spent = await _spent(stores)
    assert spent is not None
    assert 59 < spent <= 60
    assert await stores.kept_usage() == {}


async def test_without_a_quota_nothing_is_charged(stores: Stores) -> None:
    await stores.opened("one", "a")
    assert await _run(stores, "one", 1000, 0) == "begun"
    assert await _spent(stores) is None


async def test_lanes_that_an_older_router_reserved_are_counted_for_nobody(stores: Stores) -> None:
    record = await stores.opened("one", "a")
    await stores.redis.call(lambda redis: redis.hdel(KEYS.session(ONE), "tenant", "key_id"))
    await stores.redis.call(lambda redis: redis.delete(KEYS.usage))
    await stores.close(record)
    assert await stores.kept_usage() == {}
    (worker,) = await stores.workers.workers(POOL)
    assert worker.reserved_bytes == 0


async def test_a_page_has_the_busy_ones_and_the_time(stores: Stores) -> None:
    busy, idle = await stores.opened("busy", "a"), await stores.opened("idle", "b")
    await stores.sessions.begin_operation(busy, RUN, GENERATE)
    page, next_cursor = await stores.sessions.page(POOL, 0, 10)
    seen = {glance.record.session_id: (glance.record.tenant, glance.busy, glance.alive) for glance in page}
    assert seen == {"p.busy": ("a", True, True), "p.idle": ("b", False, True)}
    assert next_cursor == 0
    assert all(glance.now_ms >= idle.idle_since_ms for glance in page)
    assert await stores.sessions.page(PoolName("nowhere"), 0, 10) == ([], 0)


async def _on_record(stores: Stores, record: SessionRecord) -> None:
    await stores.redis.call(lambda redis: redis.hset(KEYS.session(record.session_id), items=plain(record.to_pairs())))
    await stores.redis.call(lambda redis: redis.zadd(KEYS.expiry, {record.session_id: 1}))


async def test_pages_have_every_session(stores: Stores) -> None:
    names = {SessionId(f"p.{number}") for number in range(300)}
    for name in names:
        await _on_record(stores, replace(session_record("x"), session_id=name))
    found: set[str] = set()
    cursor, num_pages = 0, 0
    while num_pages == 0 or cursor:
        page, cursor = await stores.sessions.page(POOL, cursor, 20)
        found.update(glance.record.session_id for glance in page)
        num_pages += 1
    assert found == names
    assert num_pages > 5


# Over the wire


@pytest.fixture
async def keyed(redis_url: str) -> AsyncIterator[Keyed]:
    async with keyed_on(redis_url, admission="queue", tenant_max_sessions=3, tenant_tokens_per_minute=600) as keyed:
        yield keyed


async def test_many_at_once_are_never_over_the_quota(keyed: Keyed) -> None:
    other = await keyed.stack.router(auth="keys", admin_key="the-administrators-own-words", admission="queue")
    key = await keyed.key("acme")
    clients = (keyed.client(key.secret), keyed.client(key.secret, other.address))
    worker = await keyed.worker(num_lanes=8)
    results = await asyncio.gather(*(clients[0].session() for _ in range(20)), return_exceptions=True)
    opened = [result for result in results if isinstance(result, str)]
    refused = [result for result in results if isinstance(result, QuotaExceeded)]
    assert (len(opened), len(refused), len(worker.lanes)) == (3, 17, 3)
    assert refused[0].metadata == {"quota": "sessions", "limit": "3", "subject": "tenant:acme"}
    assert 1 <= (refused[0].retry_after_seconds or 0) <= 2
    await clients[0].close(opened[0])
    await clients[0].session()


async def test_a_repeated_request_is_held_against_the_quota_of_no_other_pool(redis_url: str) -> None:
    async with keyed_on(redis_url, tenant_max_sessions=1) as keyed:
        for pool in ("one", "other"):
            await keyed.worker(worker_id=f"worker-{pool}", pool=pool, num_lanes=4)
        client = await keyed.tenant("acme")
        made = [await client.session(request_id=name) for name in ("a", "b")]
        assert {session_id.split(".")[0] for session_id in made} == {"one", "other"}
        for _ in range(4):
            assert [await client.session(request_id=name) for name in ("a", "b")] == made


async def test_a_keys_quota_is_its_own(redis_url: str) -> None:
    async with keyed_on(redis_url, key_max_sessions=1) as keyed:
        await keyed.worker()
        one, two = await keyed.key("acme"), await keyed.key("acme")
        await keyed.client(one.secret).session()
        with pytest.raises(QuotaExceeded, match="at most 1 sessions of one key") as raised:
            await keyed.client(one.secret).session()
        assert raised.value.metadata["subject"] == f"key:{one.key.key_id}"
        await keyed.client(two.secret).session()


async def test_the_quota_is_asked_before_lining_up_and_again_at_the_turn(redis_url: str) -> None:
    async with keyed_on(redis_url, admission="queue", tenant_max_bytes=2 * FAKE_LANE_BYTES) as keyed:
        acme, other = await keyed.tenant("acme"), await keyed.tenant("other")
        await keyed.worker(num_lanes=3)
        held = [await acme.session(), await other.session(), await other.session()]
        call = asyncio.create_task(acme.session())
        await stand(keyed.stack, 1)
        for client in (acme, other):
            with pytest.raises(QuotaExceeded):
                await client.session()  # there is no room either, and that is not what hinders it
        usage = "kakeya:{tiny}:usage"
        await keyed.stack.redis.hincrby(usage, "acme|bytes", FAKE_LANE_BYTES)  # as if it had got another meanwhile
        await other.close(held[1])
        with pytest.raises(QuotaExceeded):
            await call
        await stand(keyed.stack, 0)


async def test_used_up_tokens_say_when_they_are_back(keyed: Keyed) -> None:
    client = await keyed.tenant("acme")
    await keyed.worker()
    session_id = await client.session()
    assert (await client.append(session_id, [1] * 700)).history_length == 700
    for call in (client.append(session_id, [1]), client.generate(session_id)):
        with pytest.raises(QuotaExceeded, match="600 tokens a minute") as raised:
            await call
        assert raised.value.metadata == {"quota": "tokens_per_minute", "limit": "600", "subject": "tenant:acme"}
        assert 5 < (raised.value.retry_after_seconds or 0) <= 10.001
    assert (await client.info(session_id)).history_length == 700
    await client.close(session_id)
    await eventually(lambda: _only_tokens(keyed))


async def _only_tokens(keyed: Keyed) -> bool:
    left = {key for key in await keyed.stack.session_keys() if key.startswith("kakeya:{tiny}")}
    return left == {"kakeya:{tiny}:spent:acme"}


@pytest.mark.parametrize(
    "flag", ["tenant_max_sessions", "tenant_max_bytes", "tenant_tokens_per_minute", "key_max_sessions"]
)
def test_a_quota_that_nobody_would_have_is_refused(flag: str) -> None:
    quota: dict[str, Any] = {flag: 1}
    with pytest.raises(ValueError, match=f"--{flag.replace('_', '-')}: without --auth keys"):
        RouterSettings(**quota)
    assert RouterSettings(auth="keys", **quota).auth == "keys"


@pytest.mark.parametrize("limits", [Limits(max_sessions=3), Limits(max_reserved_bytes=3 * LANE_BYTES)])
async def test_those_of_a_tenant_that_wait_count_as_well(stores: Stores, limits: Limits) -> None:
    first = await stores.opened("one", "a")
    await stores.enter("v", "a", limits=limits)
    entry = await stores.enter("w", "a", limits=limits)
    assert (await stores.enter("x", "a", limits=limits)).outcome == "quota"  # its turn could never come
    assert (await stores.enter("y", "b", limits=limits)).outcome == "waiting"
    again = await stores.enter("w", "a", ticket=entry.ticket, limits=limits)
    assert again.outcome == "waiting"  # it was counted when it came
    await stores.close(first)
    assert (await stores.enter("x", "a", limits=limits)).outcome == "waiting"
