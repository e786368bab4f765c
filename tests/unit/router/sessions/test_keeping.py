"""Sessions that nobody uses: parked by themselves after a while; of those that are one of a few, the last are kept."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from kakeya_router.contract.creates import MAX_TTL_SECONDS
from kakeya_router.sessions import keeping
from kakeya_router.sessions.keeping import Keeping
from kakeya_router.store.session_record import PoolName
from kakeya_shared.errors.tree import InvalidField, SnapshotStoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import FakeWorker, SnapshotFiles
from tests.unit.router.keyed import keyed_on
from tests.unit.router.lanes.test_disposable import answered, is_gone
from tests.unit.router.lanes.test_parking import is_parked, state
from tests.unit.router.stack import Client, Stack, answer, eventually, turn_request

TO_PARK = "kakeya:{tiny}:to_park"
HEAD_TAG = bytes(32)


@pytest.fixture
def files() -> SnapshotFiles:
    return SnapshotFiles()


async def overdue(stack: Stack, *session_ids: str) -> None:
    """As if they had been idle for an hour more."""
    for session_id in session_ids:
        for name in ("to_park", "idle", "spare"):
            await stack.redis.zadd(f"kakeya:{{tiny}}:{name}", {session_id: -3_600_000}, xx=True, incr=True)


# Parked by themselves


async def test_what_nobody_uses_is_parked_after_its_time(stack: Stack, client: Client, files: SnapshotFiles) -> None:
    worker = await stack.worker(client, files=files)
    session_id, other = await client.session(park_after_seconds=3600), await client.session()
    for each in (session_id, other):
        await client.append(each, [1, 2])
    await overdue(stack, session_id, other)
    await eventually(lambda: is_parked(client, session_id))
    assert await state(client, other) == "OPEN"
    assert not await stack.redis.exists(TO_PARK)
    await client.append(session_id, [3])
    assert worker.lanes[session_id].token_ids == [1, 2, 3]
    assert await stack.redis.zrange(TO_PARK, 0, -1) == [session_id]


async def test_not_before_and_not_while_it_is_used(stack: Stack, client: Client, files: SnapshotFiles) -> None:
    worker = await stack.worker(client, files=files)
    busy, waiting = [await client.session(park_after_seconds=3600) for _ in range(2)]
    await client.append(waiting, [1])
    worker.flowing.clear()
    appending = asyncio.create_task(client.append(busy, [1]))

    async def appends() -> bool:
        return worker.calls["Append"] == 2

    await eventually(appends)
    assert await stack.redis.zrange(TO_PARK, 0, -1) == [waiting]
    await stack.redis.zadd(TO_PARK, {busy: 1, waiting: 1})  # it is looked at, and stays

    async def looked_at() -> bool:
        return bool(await stack.redis.zcount(TO_PARK, "-inf", 1) == 0)

    await eventually(looked_at)
    worker.flowing.set()
    await appending
    assert [await state(client, each) for each in (busy, waiting)] == ["OPEN", "OPEN"]


async def test_without_a_store_it_stays_on_its_lane(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "_AGAIN_MS", 0)
    await stack.worker(client)
    session_id = await client.session(park_after_seconds=3600)
    await client.append(session_id, [1])
    looks, park = asyncio.Semaphore(0), Keeping._park

    async def look(self: Keeping, record: Any) -> None:
        await park(self, record)
        looks.release()

    monkeypatch.setattr(Keeping, "_park", look)
    await overdue(stack, session_id)
    for _ in range(3):
        await looks.acquire()
    assert await state(client, session_id) == "OPEN"


async def test_what_cannot_be_parked_is_tried_again(
    stack: Stack, client: Client, files: SnapshotFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "_AGAIN_MS", 0)
    worker = await stack.worker(client, files=files)
    session_id = await client.session(park_after_seconds=3600)
    for _ in range(3):
        await client.turn(turn_request(session_id, range(30)))
    await eventually(lambda: leans_on_the_store(stack, session_id))
    worker.failures["WriteSnapshot"] = [SnapshotStoreUnavailable("the disk is full")] * 3
    await client.append(session_id, [1])
    await overdue(stack, session_id)
    await eventually(lambda: is_parked(client, session_id))


async def leans_on_the_store(stack: Stack, session_id: str) -> bool:
    return int(await stack.redis.hget(f"kakeya:{{tiny}}:session:{session_id}", "journal_start")) > 0


@pytest.mark.parametrize("seconds", [0, MAX_TTL_SECONDS + 1])
async def test_a_time_that_is_none(client: Client, worker: FakeWorker, seconds: int) -> None:
    with pytest.raises(InvalidField) as raised:
        await client.session(park_after_seconds=seconds)
    assert raised.value.metadata["field"] == "park_after_seconds"


# One of a few


async def fork(client: Client, source: str, boundary: int) -> str:
    """By a Turn at an earlier place, which makes it."""
    turned = await client.turn(turn_request(source, [5], boundary=boundary))
    assert turned.session.session_id != source
    return str(turned.session.session_id)


async def gone(client: Client, session_ids: Iterable[str]) -> list[bool]:
    return [await is_gone(client, session_id) for session_id in session_ids]


async def become(client: Client, session_ids: Iterable[str], expected: list[bool]) -> None:
    async def is_so() -> bool:
        return await gone(client, session_ids) == expected

    await eventually(is_so)


async def test_of_a_place_so_many_forks_are_kept(stack: Stack) -> None:
    client = await stack.router(max_children=2)
    await stack.worker(client, num_lanes=16)
    source = await answered(client, num_turns=2)
    forks = [await fork(client, source, 7) for _ in range(2)]
    elsewhere = [await fork(client, source, 3), await fork(client, source, 8)]
    forks.append(await fork(client, forks[0], 7))  # the same place, in one of the others, which is use of that
    await become(client, forks, [False, True, False])
    forks.append(await client.session(fork_from={"session_id": source, "boundary": 7}, disposable=True))
    await become(client, forks, [True, True, False, False])
    assert await gone(client, (source, *elsewhere)) == [False] * 3
    forked = await answer(
        client.runtime.ForkSession(
            api.ForkSessionRequest(source=api.ForkPoint(session_id=source, boundary=7), disposable=True)
        )
    )
    await become(client, [*forks, forked.session.session_id], [True, True, True, False, False])


async def test_forks_that_are_not_disposable_are_kept(stack: Stack) -> None:
    client = await stack.router(max_children=1)
    await stack.worker(client, num_lanes=16)
    source = await client.session()
    await client.append(source, [1, 2, 3])
    await client.generate(source, 4)
    await client.append(source, [4])
    forks = [await fork(client, source, 7) for _ in range(3)]
    assert await gone(client, forks) == [False] * 3
    assert not await stack.redis.exists("kakeya:{tiny}:groups")


async def test_a_fork_that_is_used_stays_and_is_counted(stack: Stack) -> None:
    client = await stack.router(max_children=1)
    worker = await stack.worker(client, num_lanes=16)
    source = await answered(client, num_turns=2)
    first = await fork(client, source, 7)
    call = client.turning(turn_request(first, [1], 1_000_000))
    await call.read()
    second = await fork(client, source, 7)
    third = await fork(client, source, 7)
    await become(client, (first, second, third), [False, True, False])
    call.cancel()
    assert first in worker.lanes


async def test_two_routers_that_fork_at_once_keep_as_many(stack: Stack) -> None:
    clients = [await stack.router(max_children=3) for _ in range(2)]
    await stack.worker(clients[0], num_lanes=32)
    source = await answered(clients[0], num_turns=2)
    for _ in range(4):
        await asyncio.gather(*(fork(client, source, 7) for client in clients for _ in range(3)))
        await fork(clients[0], source, 7)  # what was in use may go now
        await eventually(lambda: has_groups(stack, 3))
    left = {member.rpartition("|")[2] for member in await stack.redis.zrange("kakeya:{tiny}:groups", 0, -1)}
    assert await gone(clients[0], left) == [False] * 3


async def has_groups(stack: Stack, number: int) -> bool:
    return bool(await stack.redis.zcard("kakeya:{tiny}:groups") == number)


async def test_a_router_that_is_lost_before_it_closes_leaves_one_more_until_the_next(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await stack.router(max_children=2)
    await stack.worker(client, num_lanes=16)
    source = await answered(client, num_turns=2)
    with pytest.MonkeyPatch.context() as lost:
        lost.setattr(Keeping, "trim", lambda self, record: None)
        forks = [await fork(client, source, 7) for _ in range(4)]
    assert await gone(client, forks) == [False] * 4
    forks.append(await fork(client, source, 7))
    await become(client, forks, [True, True, True, False, False])


async def test_of_heads_the_last_used_are_kept_and_all_of_their_forks(stack: Stack, files: SnapshotFiles) -> None:
    client = await stack.router(max_heads=2, max_children=1)
    await stack.worker(client, num_lanes=16, files=files)
    heads = []
    for number in range(3):
        head = await client.session(head=True)
        await client.append(head, range(number + 1))
        await client.tag(head, "HEAD", number + 1, HEAD_TAG[:-1] + bytes([number]))
        heads.append(head)
    forks = [await client.session(fork_from={"session_id": heads[0]}, disposable=True) for _ in range(3)]
    assert await gone(client, (*heads, *forks)) == [False] * 6  # those with a lane stay
    for head in heads:
        await client.park(head)
    fork_of_parked = {"session_id": heads[0], "boundary": 1}
    forks.append(await client.session(fork_from=fork_of_parked, disposable=True))  # which is use of it
    assert await is_parked(client, heads[0])  # it goes by history
    turned = await client.turn(turn_request(heads[0], [5], boundary=1, request_id="once"))
    forks.append(turned.session.session_id)
    assert turned.session.session_id not in heads  # which no turn goes on in
    assert (await client.find(HEAD_TAG)).session_id == heads[0]  # and in none of its forks
    heads.append(await client.session(head=True))
    await become(client, heads, [False, True, True, False])
    assert await gone(client, forks) == [False] * 5


async def test_a_head_on_its_lane_is_copied(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client, num_lanes=4)
    head = await client.session(head=True)
    await client.append(head, range(30))
    turned = await client.turn(turn_request(head, [5], boundary=30))
    assert turned.appended.history_length == 31
    assert (await client.info(head)).history_length == 30
    assert worker.calls["Append"] == 2


async def test_each_tenant_has_its_own(redis_url: str) -> None:
    async with keyed_on(redis_url, max_heads=1) as keyed:
        ours, theirs = await keyed.tenant("ours"), await keyed.tenant("theirs")
        await keyed.worker(num_lanes=8)
        heads = [await client.session(head=True) for client in (ours, theirs)]
        for client, head in zip((ours, theirs), heads, strict=True):
            await client.append(head, [1])
            await client.park(head)
        await ours.session(head=True)
        await become(ours, heads[:1], [True])
        assert await state(theirs, heads[1]) == "PARKED"


async def test_a_fork_that_a_turn_makes_is_as_its_source(stack: Stack, client: Client) -> None:
    await stack.worker(client, num_lanes=8)
    source = await answered(client, num_turns=2, park_after_seconds=90)
    record = await stack.redis.hgetall(f"kakeya:{{tiny}}:session:{await fork(client, source, 7)}")
    assert (record["park_after_ms"], record["disposable"], record["head"]) == ("90000", "1", "0")
    plain = await client.session()
    await client.append(plain, [1])
    await client.generate(plain, 3)
    record = await stack.redis.hgetall(f"kakeya:{{tiny}}:session:{await fork(client, plain, 1)}")
    assert (record["park_after_ms"], record["disposable"]) == ("0", "0")


# So much in all


async def parked(client: Client, number: int, **fields: Any) -> list[str]:
    """Parked sessions, those first that nobody has used for longest."""
    session_ids = [await answered(client, num_turns=2, **fields) for _ in range(number)]
    for session_id in session_ids:
        await client.park(session_id)
    return session_ids


async def test_of_parked_sessions_so_many_are_kept(stack: Stack, files: SnapshotFiles) -> None:
    client = await stack.router(parked_sessions=2)
    worker = await stack.worker(client, num_lanes=8, files=files)
    kept = await client.session()
    await client.append(kept, [1])
    await client.park(kept)
    sessions = await parked(client, 4)
    await become(client, sessions, [True, True, False, False])
    assert await is_parked(client, kept)  # which is not disposable
    assert not worker.lanes

    async def no_files() -> bool:
        return not any(session_id in name for name in files.contents for session_id in sessions[:2])

    await eventually(no_files)


@pytest.mark.parametrize("told", ["setting", "disk"])
async def test_of_snapshots_so_many_bytes_are_kept(stack: Stack, files: SnapshotFiles, told: str) -> None:
    hasty = await stack.router(snapshot_bytes=0)
    await stack.worker(hasty, num_lanes=8, files=files)
    sessions = await parked(hasty, 4)
    num_bytes = await counted(stack)
    assert num_bytes > 0
    assert await gone(hasty, sessions) == [False] * 4
    limit = round(num_bytes * 0.8 / 0.9)  # three of them, where it is nine tenths full
    if told == "disk":
        await stack.worker(hasty, "worker-b", files=files, snapshot_free_bytes=10 * limit)
        await stack.redis.hset("kakeya:{tiny}:worker:worker-a", "snapshot_free_bytes", 10 * limit)
    client = await stack.router(**{"snapshot_bytes": limit} if told == "setting" else {})
    await become(client, sessions, [True, False, False, False])
    assert await counted(stack) <= num_bytes * 0.8


async def test_what_makes_room_does_not_wait_for_the_reaper(stack: Stack, files: SnapshotFiles) -> None:
    client = await stack.router(parked_sessions=2, reap_interval_seconds=1000, queue_seconds=600)
    await stack.worker(client, num_lanes=1, files=files)
    sessions = []
    for number in range(5):  # each makes room for the next
        turned = await client.turn(turn_request(create={"disposable": True}, token_ids=[number]))
        sessions.append(turned.session.session_id)
        await client.turn(turn_request(sessions[-1], [7]))
    await become(client, sessions, [True, True, False, False, False])


async def counted(stack: Stack) -> int:
    return int(await stack.redis.get("kakeya:{tiny}:snapshot_bytes") or 0)


async def test_where_a_store_does_not_say_what_is_free_there_is_no_bound(
    stack: Stack, files: SnapshotFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await stack.router()
    await stack.worker(client, "worker-a", num_lanes=8, files=files, snapshot_free_bytes=1)
    await stack.worker(client, "worker-b", num_lanes=8, files=SnapshotFiles("other"))
    sessions = await parked(client, 3)
    looks, close_surplus = asyncio.Semaphore(0), Keeping.close_surplus

    async def look(self: Keeping, pool: Any) -> None:
        await close_surplus(self, pool)
        looks.release()

    monkeypatch.setattr(Keeping, "close_surplus", look)
    for _ in range(2):
        await looks.acquire()
    assert await gone(client, sessions) == [False] * 3


async def test_one_that_is_used_meanwhile_stays(stack: Stack, client: Client, files: SnapshotFiles) -> None:
    await stack.worker(client, num_lanes=8, files=files)
    first, second = await parked(client, 2)
    await stack.redis.hset(f"kakeya:{{tiny}}:op:{first}", mapping={"claim": "a", "lease_until_ms": 1 << 50})
    await stack.router(parked_sessions=1)
    await become(client, (first, second), [False, True])


async def test_a_pool_is_looked_at_once_more_where_it_has_come_to_keep_more(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, number = asyncio.Event(), 0

    async def close_surplus(self: Keeping, pool: str) -> None:
        nonlocal number
        number += 1
        await looks.wait()

    monkeypatch.setattr(Keeping, "close_surplus", close_surplus)
    tasks = DetachedTasks()
    kept = Keeping.__new__(Keeping)
    kept._looking, kept._tasks = {}, tasks
    for _ in range(5):
        kept.look(PoolName("tiny"))
        await asyncio.sleep(0)
    looks.set()
    assert await tasks.drain(60) == 0
    assert number == 2, "for all that came while it looked, once"
    kept.look(PoolName("tiny"))
    assert await tasks.drain(60) == 0
    assert number == 3
