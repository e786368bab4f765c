"""Whose turn it is: first come, first served inside a tenant, and between tenants who holds the least."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from kakeya_router.store.outcomes import EnterQueue
from kakeya_router.store.session_record import Incarnation, SessionRecord, WorkerId
from kakeya_router.store.sessions.queue_store import QueueStore, Renewal
from kakeya_router.store.sessions.session_changes import INTERRUPTED
from tests.unit.router.admission_stores import KEYS, OP, POOL, Stores, session_record, stores_on, worker_record
from tests.unit.router.session_stores import SessionStores, identity


@pytest.fixture
async def stores(redis_url: str) -> AsyncIterator[Stores]:
    async with stores_on(redis_url) as stores:
        await stores.workers.join(worker_record())
        yield stores


async def test_a_newcomer_passes_nobody_who_could_go(stores: Stores) -> None:
    await stores.enter("first")
    assert (await stores.reserve("newcomer")).outcome == "wait"
    assert (await stores.reserve("one", waiter_id="first")).outcome == "reserved"
    assert (await stores.reserve("newcomer")).outcome == "reserved"


async def test_only_the_first_in_line_goes(stores: Stores) -> None:
    for name in ("a", "b", "c"):
        await stores.enter(name)
    assert await stores.first() == {"w": ("a", True)}
    assert (await stores.reserve("one", waiter_id="b")).outcome == "wait"
    assert (await stores.reserve("one", waiter_id="stranger")).outcome == "wait"
    assert (await stores.reserve("one", waiter_id="a")).outcome == "reserved"
    assert await stores.waiting() == ["b", "c"]
    assert await stores.first() == {"w": ("b", True)}
    await stores.queue.leave(POOL, "b")
    await stores.queue.leave(POOL, "b")
    assert (await stores.reserve("two", waiter_id="c")).outcome == "reserved"
    assert not await stores.redis.call(lambda redis: redis.exists(KEYS.queue, KEYS.waiters))


async def test_a_full_worker_is_told_apart(stores: Stores) -> None:
    records = [await stores.opened(name) for name in ("one", "two")]
    await stores.enter("a")
    assert await stores.first() == {"w": ("a", False)}
    assert (await stores.reserve("three", waiter_id="a")).outcome == "full"
    await stores.close(records[0])
    assert await stores.first() == {"w": ("a", True)}


async def test_between_tenants_who_holds_less_comes_first(stores: Stores) -> None:
    await stores.opened("held", "rich")
    for waiter_id, tenant in (("r1", "rich"), ("p1", "poor"), ("q1", "quiet"), ("p2", "poor")):
        await stores.enter(waiter_id, tenant)
    assert await stores.first() == {"w": ("p1", True)}  # poor and quiet hold nothing, and p1 is older
    assert (await stores.reserve("newcomer", "rich")).outcome == "wait"
    assert (await stores.reserve("newcomer", "other")).outcome == "wait"  # it holds nothing too, and came later
    await stores.queue.leave(POOL, "p1")
    await stores.queue.leave(POOL, "q1")
    await stores.queue.leave(POOL, "p2")
    assert (await stores.reserve("newcomer", "other")).outcome == "reserved"  # before the rich one who waits


async def test_interrupted_operations_come_first_the_oldest_before_all(stores: Stores) -> None:
    await stores.opened("held", "rich")
    await stores.enter("poor", "poor")
    for name in ("old", "young"):
        await stores.enter(name, INTERRUPTED)
    assert await stores.first() == {"w": ("old", True)}
    usage = await stores.sessions.usage(POOL)
    assert {tenant: used.num_waiting for tenant, used in usage.items()} == {"poor": 1, "rich": 0}
    await stores.queue.leave(POOL, "old")
    assert await stores.first() == {"w": ("young", True)}
    await stores.queue.leave(POOL, "young")
    assert await stores.first() == {"w": ("poor", True)}


async def test_interrupted_operations_never_make_way(stores: Stores) -> None:
    short = QueueStore(stores.redis, lease_seconds=60.0, queue_length=4)
    for number in range(4):
        await stores.enter(f"interrupted-{number}", INTERRUPTED, queue=short)
    assert (await stores.enter("poor", "poor", queue=short)).outcome is EnterQueue.FULL
    assert await stores.waiting() == [f"interrupted-{number}" for number in range(4)]


async def test_tenants_with_similar_names_have_lines_of_their_own(stores: Stores) -> None:
    tenants = ("a", "ab", "", "a-b", "a.b", "a_b", "zz", "0")
    waiters = [(f"{tenant}:{number}", tenant) for number in range(3) for tenant in tenants]
    for waiter_id, tenant in waiters:
        await stores.enter(waiter_id, tenant)
    usage = await stores.sessions.usage(POOL)
    assert {tenant: used.num_waiting for tenant, used in usage.items()} == dict.fromkeys(tenants, 3)
    for waiter_id, _ in waiters:
        assert await stores.first() == {"w": (waiter_id, True)}
        await stores.queue.leave(POOL, waiter_id)
    assert await stores.first() == {}


async def test_each_worker_has_a_first_of_its_own(stores: Stores) -> None:
    await stores.workers.join(worker_record("v", fingerprint="vv"))
    await stores.enter("only-v", fingerprint="vv")
    await stores.enter("not-v", refused=("i-v",))
    await stores.enter("any")
    assert await stores.first("w", "v") == {"w": ("not-v", True), "v": ("only-v", True)}
    assert await stores.first("gone") == {}
    assert (await stores.reserve("one", waiter_id="any")).outcome == "wait"
    await stores.queue.leave(POOL, "not-v")
    assert (await stores.reserve("one", waiter_id="any")).outcome == "reserved"


async def test_lapsed_waiters_are_passed_over_and_forgotten(stores: Stores) -> None:
    vanished = QueueStore(stores.redis, lease_seconds=-1, queue_length=1000)
    for name in ("ghost-1", "ghost-2"):
        await stores.enter(name, queue=vanished)
    await stores.enter("alive")
    await stores.enter("ghost-3", queue=vanished)
    assert await stores.first() == {"w": ("alive", True)}
    assert await stores.waiting() == ["alive", "ghost-3"]
    assert await stores.queue.renew(POOL, [("ghost-1", "", ""), ("alive", "", "")]) == Renewal(["ghost-1"], [], [])
    await stores.queue.leave(POOL, "alive")
    await stores.enter("rich-ghost", "rich", queue=vanished)
    await stores.queue.forget_lapsed(POOL)
    assert await stores.waiting() == []


async def test_who_comes_back_stands_where_it_stood(stores: Stores) -> None:
    first = await stores.enter("a")
    await stores.enter("b")
    assert (await stores.reserve("one", waiter_id="a")).outcome == "reserved"
    again = await stores.enter("a", ticket=first.ticket, refused=("i-w",), returning=True)
    assert again.ticket == first.ticket
    assert await stores.waiting() == ["a", "b"]
    assert await stores.first() == {"w": ("b", True)}  # its worker is not for it


async def test_a_line_that_was_empty_does_not_forget_who_came_first(stores: Stores) -> None:
    first = await stores.enter("a")
    await stores.queue.leave(POOL, "a")
    await stores.enter("b")
    await stores.enter("a", ticket=first.ticket, returning=True)
    assert await stores.waiting() == ["a", "b"]


async def test_the_longest_gives_way_in_a_full_queue(stores: Stores) -> None:
    short = QueueStore(stores.redis, lease_seconds=60, queue_length=4)
    for number in range(3):
        await stores.enter(f"g{number}", "greedy", queue=short)
    await stores.enter("m0", "modest", queue=short)
    assert (await stores.enter("g3", "greedy", queue=short)).outcome == "full"
    assert (await stores.enter("m1", "modest", queue=short)).outcome == "waiting"  # 1 against 3
    assert await stores.waiting() == ["g0", "g1", "m0", "m1"]
    assert (await stores.enter("m2", "modest", queue=short)).outcome == "full"  # 2 against 2
    assert (await stores.enter("n0", "new", queue=short)).outcome == "waiting"
    assert len(await stores.waiting()) == 4
    assert (await stores.enter("o0", "other", queue=short)).outcome == "waiting"
    assert (await stores.enter("p0", "more", queue=short)).outcome == "full"  # everybody has one
    assert (await stores.enter("g0", "greedy", queue=short)).outcome == "waiting"  # it stands there already
    assert (await stores.enter("back", "greedy", queue=short, returning=True)).outcome == "waiting"


async def test_lapsed_waiters_give_way_first(stores: Stores) -> None:
    short = QueueStore(stores.redis, lease_seconds=60, queue_length=2)
    await stores.enter("a", queue=short)
    await stores.enter("ghost", queue=QueueStore(stores.redis, lease_seconds=-1, queue_length=2))
    assert (await stores.enter("b", queue=short)).outcome == "waiting"
    assert await stores.waiting() == ["a", "b"]


async def test_giving_back_and_leaving_are_announced_while_somebody_waits(stores: Stores) -> None:
    heard: deque[str] = deque()

    async def listen() -> None:
        async with stores.redis._redis.pubsub() as pubsub:
            await pubsub.subscribe("kakeya:room")
            async for message in pubsub.listen():
                heard.append(str(message["data"]))

    async def said(*expected: str) -> None:
        async with asyncio.timeout(60):
            while list(heard) != list(expected):
                await asyncio.sleep(0.01)
        heard.clear()

    listening = asyncio.create_task(listen())
    await said("1")
    record = await stores.opened("one")
    await stores.close(record)  # nobody waits
    record = await stores.opened("two")
    await stores.enter("a")
    await stores.enter("b")
    await stores.close(record)
    await said("p")
    await stores.queue.leave(POOL, "a")
    await said("p")
    await stores.workers.join(worker_record("v"))
    await said("p")
    assert (await stores.reserve("three", waiter_id="b")).outcome == "reserved"
    await stores.redis.call(lambda redis: redis.publish("kakeya:room", "end"))
    await said("end")  # b was the last
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


@dataclass
class Tenant:
    """Clients in a closed loop: each waits, has a lane for a while, and waits again."""

    name: str
    num_clients: int
    num_admitted: int = 0
    waits: list[int] = field(default_factory=list)

    @property
    def mean_wait(self) -> float:
        return sum(self.waits) / len(self.waits)


async def _closed_loop(stores: Stores, tenants: list[Tenant], num_lanes: int, num_releases: int) -> None:
    """Lanes come free one at a time, at random; time is counted in releases."""
    draw = random.Random(7)
    held: list[tuple[Tenant, SessionRecord]] = []
    waiting: dict[str, tuple[Tenant, int]] = {}
    number = 0

    async def wait(tenant: Tenant, now: int) -> None:
        nonlocal number
        number += 1
        waiting[f"{number}"] = (tenant, now)
        await stores.enter(f"{number}", tenant.name)

    async def admit(now: int) -> None:
        while turn := (await stores.first()).get("w"):
            waiter_id, has_room = turn
            if not has_room:
                return
            tenant, since = waiting.pop(waiter_id)
            held.append((tenant, await stores.opened(waiter_id, tenant.name, waiter_id=waiter_id)))
            tenant.num_admitted += 1
            tenant.waits.append(now - since)

    for tenant in tenants:
        for _ in range(tenant.num_clients):
            await wait(tenant, 0)
    for now in range(num_releases):
        await admit(now)
        assert len(held) == num_lanes
        tenant, record = held.pop(draw.randrange(len(held)))
        await stores.close(record)
        await wait(tenant, now)
    for _, record in held:
        await stores.close(record)
    for waiter_id in waiting:
        await stores.queue.leave(POOL, waiter_id)
    assert await stores.kept_usage() == {}


async def test_ten_times_as_many_clients_take_nothing_from_others(stores: Stores) -> None:
    num_lanes, num_releases, num_clients = 4, 150, 4
    await stores.workers.drop(identity("w", "i-w"), lapsed_only=False)
    await stores.workers.swept(POOL, Incarnation("i-w"))
    await stores.workers.join(worker_record("w", num_lanes))
    alone, twin = Tenant("modest", num_clients), Tenant("greedy", num_clients)
    await _closed_loop(stores, [twin, alone], num_lanes, num_releases)
    modest, greedy = Tenant("modest", num_clients), Tenant("greedy", 10 * num_clients)
    await _closed_loop(stores, [greedy, modest], num_lanes, num_releases)
    assert modest.num_admitted >= alone.num_admitted / 1.5
    assert modest.mean_wait <= alone.mean_wait * 1.5
    assert max(modest.waits) <= max(alone.waits) * 1.5
    assert greedy.num_admitted >= num_releases / 3  # nor is it kept out


async def test_a_waiter_whose_request_was_answered_is_out_of_the_line(stores: Stores) -> None:
    await stores.enter("a")
    await stores.enter("b")
    assert (await stores.reserve("one", waiter_id="a", request_id="r")).outcome == "reserved"
    assert await stores.queue.renew(POOL, [("b", "", "r")]) == Renewal([], ["b"], [])
    assert (await stores.reserve("two", waiter_id="b", request_id="r")).outcome == "duplicate"
    assert await stores.waiting() == []


async def _num_commands(stores: Stores) -> int:
    stats = await stores.redis.call(lambda redis: redis.info("commandstats"))
    return sum(int(command["calls"]) for command in stats.values())


async def test_a_long_line_is_read_in_few_commands(stores: Stores) -> None:
    """Each command in a script takes microseconds in which nobody else is served."""
    await stores.workers.join(worker_record("v", fingerprint="vv"))
    for number in range(300):
        await stores.enter(f"a{number}", "a", fingerprint="ww")
        await stores.enter(f"t{number}", f"t{number}", fingerprint="ww")
    short = QueueStore(stores.redis, lease_seconds=60, queue_length=600)
    assert (await stores.enter("late", "a", queue=short)).outcome == "full"  # this one looks for lapsed ones
    before = await _num_commands(stores)
    assert (await stores.reserve("one", "zz", worker_id="v")).outcome == "reserved"
    assert await stores.first("w", "v") == {}
    assert (await stores.enter("late", "a", queue=short)).outcome == "full"
    assert await _num_commands(stores) - before < 100


async def test_the_first_that_comes_before_is_enough(stores: Stores) -> None:
    for number in range(300):
        await stores.enter(f"w{number}", f"t{number}")
    before = await _num_commands(stores)
    assert (await stores.reserve("one", "zz", waiter_id="w299")).outcome == "wait"
    assert (await stores.reserve("one", "zz")).outcome == "wait"
    assert await _num_commands(stores) - before < 25


async def test_all_that_have_lapsed_are_found_in_a_long_line(stores: Stores) -> None:
    vanished = QueueStore(stores.redis, lease_seconds=-1, queue_length=1000)
    for number in range(200):
        await stores.enter(f"ghost{number}", "a", queue=vanished)
        await stores.enter(f"alive{number}", "b")
    await stores.queue.forget_lapsed(POOL)
    assert len(await stores.waiting()) == 200
    assert await stores.first() == {"w": ("alive0", True)}
    await stores.enter("ghost", "b", queue=vanished)
    await stores.queue.forget_lapsed(POOL)
    assert len(await stores.waiting()) == 201  # it looks once a second
    for number in range(200):
        await stores.queue.leave(POOL, f"alive{number}")
    assert await stores.first() == {}
    assert await stores.waiting() == []


async def test_after_an_outage_nobody_is_taken_for_lapsed(stores: Stores) -> None:
    graceful = QueueStore(stores.redis, lease_seconds=-1, queue_length=1, grace_seconds=60)
    sessions = SessionStores(
        stores.redis,
        "router",
        operation_lease_ms=10_000,
        lane_lease_ms=10_000,
        grace_seconds=0,
        waiter_grace_seconds=60,
    )
    await stores.enter("old", queue=graceful)
    assert (await stores.enter("new", queue=graceful)).outcome == "full"
    assert [turn.waiter_id for turn in await graceful.first_waiters(POOL, [WorkerId("w")])] == ["old"]
    assert (await sessions.reserve(session_record("one"), OP)).outcome == "wait"
    await graceful.forget_lapsed(POOL)
    assert await stores.waiting() == ["old"]
    assert (await stores.reserve("one")).outcome == "reserved"  # who knows of no outage
    assert await stores.waiting() == []


async def test_who_made_way_is_told_apart_from_who_lapsed(stores: Stores) -> None:
    short = QueueStore(stores.redis, lease_seconds=60, queue_length=2)
    for waiter_id in ("g0", "g1"):
        await stores.enter(waiter_id, "greedy", queue=short)
    await stores.enter("m0", "modest", queue=short)
    requests = [(waiter_id, "", "") for waiter_id in ("g0", "g1", "unknown")]
    assert await stores.queue.renew(POOL, requests) == Renewal(["unknown"], [], ["g1"])
    assert await stores.queue.renew(POOL, requests) == Renewal(["g1", "unknown"], [], [])


async def test_a_waiter_of_another_model_is_passed_by(stores: Stores) -> None:
    await stores.enter("other", model="n")
    assert await stores.first() == {}
    assert (await stores.reserve("one")).outcome == "reserved"


async def test_a_place_without_its_waiter_holds_up_nobody(stores: Stores) -> None:
    """As where a waiter that made way in a full queue came back before its router had heard of that."""
    ghosts = {f"|{number:016}|ghost": 0 for number in (1, 2)}
    await stores.redis.call(lambda redis: redis.zadd(KEYS.queue, ghosts))
    assert (await stores.enter("one")).outcome == "waiting"
    assert await stores.first("w") == {"w": ("one", True)}
    await stores.opened("next", waiter_id="one")
    assert await stores.waiting() == []


async def test_who_enters_again_has_one_place(stores: Stores) -> None:
    ticket = (await stores.enter("one")).ticket
    await stores.redis.call(lambda redis: redis.zadd(KEYS.evicted, {"one": 1}))
    assert (await stores.enter("one")).ticket > ticket
    assert await stores.waiting() == ["one"]
    renewal = await stores.queue.renew(POOL, [("one", "", "")])
    assert (renewal.displaced, renewal.evicted) == ([], [])
