"""What forks have inherited is given back."""
# ruff: noqa: F403, F405  # all the words of the table

from dataclasses import replace

from kakeya_router.snapshots.past import Past
from kakeya_router.store.session_record import LaneState
from kakeya_router.store.sessions.stored_snapshots import StoredSnapshot, parse, text
from tests.unit.router.admission_stores import KEYS, POOL
from tests.unit.router.store.script_steps import *
from tests.unit.router.store.script_world import *
from tests.unit.router.store.sessions.rows import NEEDED, SOURCE


async def heirs(world: World) -> list[str]:
    found: list[str] = await world.redis.call(lambda redis: redis.zrange(KEYS.heirs, 0, -1))
    return found


async def test_what_a_fork_needs_is_what_its_source_says(world: World) -> None:
    await SOURCE.bring_about(world)
    assert Past(await world.record(), 5, b"").needed == NEEDED


async def test_an_inheritance_is_given_back(world: World) -> None:
    """With the list that replaces it, with a rewind, and with the end of the session."""
    forked = reserve(of=TWO, source=SESSION, length=7) + mark_open(of=TWO, lane=LaneState(7), source=SESSION)
    await (source(5, 7, *LISTED) + forked).bring_about(world)
    sessions, record = world.sessions, await world.record(TWO)
    assert await sessions.heirs(POOL, [*FILES[:2], "p/p.one"]) == dict.fromkeys(FILES[:2], TWO)
    assert record.is_recoverable
    own = StoredSnapshot("p/p.two-1-0-0123abcd-7.safetensors", 0, 7, 20)
    assert await sessions.set_snapshots(replace(record, inherited=""), (own,), 0, "store", 0) == "changed"
    assert len(await heirs(world)) == 3
    assert await sessions.set_snapshots(record, (own,), 0, "store", 0, BOTH) == "set"
    with_own = await world.record(TWO)
    assert (parse(with_own.inherited), parse(with_own.snapshots)) == (BOTH, (own,))
    assert await heirs(world) == [f"{file}|p.two" for file in FILES[:2]]
    await sessions.begin_operation(with_own, A, REWIND)
    assert (await sessions.rewind(record, A, 3, (), "store", 1, FIRST)).outcome == "changed"
    assert (await sessions.rewind(await world.record(TWO), A, 3, (), "store", 1, FIRST)).outcome == "rewound"
    assert parse((await world.record(TWO)).inherited) == FIRST
    assert await heirs(world) == [f"{FILES[0]}|p.two"]
    await close(of=TWO).call(world)
    assert len(await heirs(world)) == 1
    await delete(of=TWO).call(world)
    assert not await heirs(world)
    assert (await world.record()).snapshots == text(LISTED)


async def test_heirs_that_an_older_router_closed_are_forgotten(world: World) -> None:
    sessions = world.sessions
    await world.redis.call(lambda redis: redis.zadd(KEYS.heirs, {f"{FILES[0]}|{of}": 0 for of in (TWO, THREE)}))
    await sessions.forget_heirs(POOL, {})
    assert await sessions.heirs(POOL, FILES[:1]) == {FILES[0]: "p.three"}
    await sessions.forget_heirs(POOL, {FILES[0]: THREE})
    assert await sessions.heirs(POOL, [FILES[0], "p/p.one"]) == {FILES[0]: "p.two"}
