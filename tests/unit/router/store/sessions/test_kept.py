"""Which sessions are to be parked, make room, or are too many: the scripts that choose, and what Redis has lost."""
# ruff: noqa: F403, F405  # all the words of the table

from dataclasses import replace

from kakeya_router.store.session_record import LaneState, SessionId
from kakeya_router.store.sessions.stored_snapshots import StoredSnapshot
from tests.unit.router.admission_stores import KEYS, POOL
from tests.unit.router.store.script_steps import *
from tests.unit.router.store.script_world import *
from tests.unit.router.store.sessions.kept_rows import FREE, HEAD, LONG, SHORT, WRITTEN

CHILDREN = [SessionId(f"p.child-{number}") for number in range(4)]


def child(of: SessionId) -> Steps:
    """A parked fork of p.one at 3."""
    fork = reserve(of=of, source=SESSION, length=3, disposable=True)
    return fork + mark_open(of=of, lane=LaneState(3), source=SESSION) + park(of=of)


FAMILY = sum((child(of) for of in CHILDREN), ran(3)).called("family")


async def surplus(world: World, of: SessionId, limit: int) -> list[str]:
    return [record.session_id for record in await world.sessions.surplus(await world.record(of), limit)]


async def test_of_too_many_children_the_least_recently_used_go_and_not_the_newest(world: World) -> None:
    await FAMILY.bring_about(world)
    first, second, third, newest = CHILDREN
    assert await surplus(world, newest, 4) == []
    assert await surplus(world, newest, 2) == [first, second]
    assert await surplus(world, newest, 0) == [first, second, third]  # not what was just made
    await use(3, is_reachable=True, of=first).call(world)
    assert await surplus(world, newest, 2) == [second, third]
    await begin(A, of=second).call(world)
    await resume(A, WORKER, of=second).call(world)
    assert await surplus(world, newest, 2) == [third, first]  # what is in use counts, and stays


async def test_children_that_make_room_go_too_the_cheap_ones_by_when_they_were_used(world: World) -> None:
    """The rank of a cheap one is not the time of its use."""
    await (FAMILY + redis("ZREM", KEYS.parked, *CHILDREN)).bring_about(world)
    now = await world.redis.now_ms()
    ranks = {CHILDREN[0]: now - 10, CHILDREN[1]: now - 20 - 10**13, CHILDREN[2]: now - 10**13}
    await world.redis.call(lambda redis: redis.zadd(KEYS.spare, ranks))
    assert await surplus(world, CHILDREN[3], 1) == [CHILDREN[1], CHILDREN[0], CHILDREN[2]]


async def test_what_is_left_of_children_that_are_gone_counts_no_more(world: World) -> None:
    await (FAMILY + remove(KEYS.session(CHILDREN[0]))).bring_about(world)
    assert await surplus(world, CHILDREN[3], 2) == [CHILDREN[1]]
    assert len((await world.held())["groups"]) == 3


async def test_children_of_other_tenants_and_places_are_others(world: World) -> None:
    other = reserve(of=TWO, source=SESSION, length=2, disposable=True)
    foreign = reserve(of=THREE, source=SESSION, length=3, disposable=True, tenant="a")
    await (ran(3) + other).bring_about(world)
    assert await surplus(world, TWO, 0) == []
    groups = {(await world.record(TWO)).group}
    await (close(cause=ABANDON, of=TWO) + delete(of=TWO) + foreign).bring_about(world)
    groups.add((await world.record(THREE)).group)
    assert len(groups) == 2
    assert (await world.held())["groups"] == [f"a|{(await world.record(THREE)).group}|p.three"]


async def test_of_heads_only_parked_ones_go(world: World) -> None:
    await HEAD.bring_about(world)
    new = replace(await world.record(TWO), group="head")
    assert await world.sessions.surplus(new, 0) == []
    await park().call(world)
    assert [record.session_id for record in await world.sessions.surplus(new, 0)] == [ONE]


async def test_what_is_to_be_parked_is_taken_by_one_router_at_a_time(world: World) -> None:
    await LONG.bring_about(world)
    assert await world.sessions.take_due(POOL, 10, 5_000) == []
    await world.redis.call(lambda redis: redis.zincrby(KEYS.to_park, -30_000, ONE))
    await world.later()
    (record,) = await world.sessions.take_due(POOL, 10, 600_000)
    assert record == await world.record()
    assert await world.sessions.take_due(POOL, 10, 600_000) == []
    await world.redis.call(lambda redis: redis.zincrby(KEYS.to_park, -600_000, ONE))
    await world.later()
    assert await world.sessions.take_due(POOL, 10, 600_000) == [record]


async def test_so_many_are_taken_at_once(world: World) -> None:
    await SHORT.bring_about(world)
    await world.redis.call(lambda redis: redis.zadd(KEYS.to_park, {ONE: 2, "p.gone": 1}))
    assert await world.sessions.take_due(POOL, 1, 5_000) == []  # one that Redis has evicted, and what is left of it
    assert await world.redis.call(lambda redis: redis.zrange(KEYS.to_park, 0, -1)) == [ONE]
    assert [record.session_id for record in await world.sessions.take_due(POOL, 1, 5_000)] == [ONE]


async def test_what_makes_room_comes_in_its_order_and_by_tenant(world: World) -> None:
    await SHORT.bring_about(world)
    ((rank, record),) = await world.sessions.spare(POOL, 0, 10)
    assert rank == (await world.record()).idle_since_ms - 10**13
    assert record == await world.record()
    await world.redis.call(lambda redis: redis.zadd(KEYS.spare_of(""), {"p.gone": -(10**13)}))
    assert await world.sessions.spare(POOL, 0, 1, tenant="") == [(rank, record)]
    assert await world.redis.call(lambda redis: redis.zrange(KEYS.spare_of(""), 0, -1)) == [ONE]  # it is forgotten
    assert await world.sessions.spare(POOL, 1, 10) == []
    assert await world.sessions.spare(POOL, 0, 10, tenant="other") == []


async def test_a_new_session_makes_no_room_before_its_answer(world: World) -> None:
    await FREE.bring_about(world)
    assert await world.sessions.spare(POOL, 0, 10) == []


# Bytes of snapshots


async def counted(world: World) -> int:
    return (await world.sessions.kept(POOL))[1]


def files(of: SessionId, *lengths: int) -> tuple[StoredSnapshot, ...]:
    """Of 20 bytes each, with names as workers give them."""
    return tuple(StoredSnapshot(f"p/{of}-1-0-0123abcd-{length}.safetensors", 0, length, 20) for length in lengths)


async def test_each_file_is_counted_once_as_long_as_any_session_names_it(world: World) -> None:
    own = files(ONE, 2, 5, 6)
    await source(2, 7, *own).bring_about(world)
    assert await counted(world) == 60
    for of in (TWO, THREE):
        fork = reserve(of=of, source=SESSION, length=5) + mark_open(of=of, lane=LaneState(5), source=SESSION)
        await (fork + park(of=of, by_journal=False)).bring_about(world)
    assert await counted(world) == 60
    await put(own[2:]).call(world)  # the others have heirs
    assert await counted(world) == 60
    forked = await world.record(TWO)
    new = files(TWO, 5)
    assert await world.sessions.set_snapshots(forked, new, 2, "store", 0, own[1:2]) == "set"
    assert await counted(world) == 80  # of the first there is an heir yet
    await (close(of=THREE) + delete(of=THREE)).bring_about(world)
    assert await counted(world) == 60
    await (close() + delete()).bring_about(world)
    assert await counted(world) == 40  # of the second
    await (close(of=TWO) + delete(of=TWO)).bring_about(world)
    assert not await world.redis.call(lambda redis: redis.exists(KEYS.snapshot_bytes))


async def test_what_its_own_session_has_stays_counted_when_heirs_end(world: World) -> None:
    own = files(ONE, 2, 5)
    fork = reserve(of=TWO, source=SESSION, length=5) + mark_open(of=TWO, lane=LaneState(5), source=SESSION)
    await (source(2, 7, *own) + fork + close(of=TWO) + delete(of=TWO)).bring_about(world)
    assert await counted(world) == 40


async def test_a_rewind_and_a_move_count_what_they_leave(world: World) -> None:
    await (source(2, 7, *files(ONE, 2, 5, 6)) + begin(A, REWIND)).bring_about(world)
    await rewind(A, 5, files(ONE, 2)).call(world)
    assert await counted(world) == 20
    await (end(A, 5, 5, num_rewinds=1) + join(OTHER_WORKER) + offer()).bring_about(world)
    await move(5, None, BOTH).call(world)
    assert await counted(world) == 40


async def test_what_an_older_router_has_not_counted_makes_no_debt(world: World) -> None:
    await (source(2, 7, *files(ONE, 2, 5)) + remove(KEYS.snapshot_bytes)).bring_about(world)
    await put(files(ONE, 5)).call(world)
    assert await counted(world) == 0
    await world.redis.call(lambda redis: redis.set(KEYS.snapshot_bytes, 1_000))
    await (close() + delete()).bring_about(world)
    assert await counted(world) == 0  # there is no session any more


async def test_parked_sessions_are_counted_and_found_in_their_order(world: World) -> None:
    await WRITTEN.bring_about(world)
    assert await world.sessions.kept(POOL) == (1, 40)
    await world.redis.call(lambda redis: redis.zadd(KEYS.parked, {"p.more": 1}))
    assert await world.sessions.longest_parked(POOL, 1) == []  # it is forgotten
    assert [record.session_id for record in await world.sessions.longest_parked(POOL, 1)] == [ONE]
    assert await world.sessions.kept(POOL) == (1, 40)
