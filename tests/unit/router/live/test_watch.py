"""Watch: everything first, then what changes, whoever changes it; and what it costs."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from kakeya_router.api import watching
from kakeya_router.live import board as boards
from kakeya_router.live.views import Sight
from kakeya_router.program import Router
from kakeya_router.settings import RouterSettings
from kakeya_router.store.keys import CHANGED
from kakeya_router.store.sessions.watch_store import WatchStore
from kakeya_shared.errors.tree import Draining, InvalidField, StoreUnavailable
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from tests.redis_server import RedisServer
from tests.unit.router.fake_worker import BYTES_PER_TOKEN, LANE_BYTES, FakeWorker
from tests.unit.router.live.watching import Viewer, viewing
from tests.unit.router.stack import FAST, Client, Stack, answer, eventually, stack_on


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards.Board, "tick_seconds", 0.02)


async def num_listeners(stack: Stack) -> int:
    return int((await stack.redis.pubsub_numsub(CHANGED))[0][1])


async def test_a_viewer_sees_everything_first(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session(client_label="mine")
    await client.append(session_id, [1, 2, 3])
    await client.generate(session_id, 4)
    async with viewing(client) as viewer:
        assert viewer.beginnings == 1
        await viewer.until(lambda viewer: viewer.sessions[session_id].HasField("lane"))
        shown = viewer.sessions[session_id]
        assert (shown.client_label, shown.model, shown.pool, shown.worker_id) == ("mine", "Tiny", "tiny", "worker-a")
        assert (shown.state, shown.busy, shown.lane) == ("open", False, 0)
        assert (shown.history_length, shown.kv_live_bytes) == (7, 7 * BYTES_PER_TOKEN)
        assert shown.reserved_bytes == LANE_BYTES
        assert [(part.start, part.end) for part in shown.retained] == [(0, 7)]
        assert (shown.sink, shown.window) == (worker.sink, worker.window)
        turn = shown.last_turn
        assert turn.num_tokens == 4
        assert 0 < turn.first_token_seconds <= turn.total_seconds
        assert viewer.latest.at - 60 < turn.ended_at <= viewer.latest.at
        seen = viewer.workers["worker-a"]
        assert (seen.num_sessions, seen.reserved_bytes, seen.last_heartbeat_age_seconds) == (1, LANE_BYTES, 0)
        assert viewer.fleet == pb.FleetSums(
            num_workers=1,
            slab_bytes=seen.slab_bytes,
            reserved_bytes=LANE_BYTES,
            kv_live_bytes=7 * BYTES_PER_TOKEN,
            num_lanes=seen.num_lanes,
            num_lanes_held=1,
            num_sessions=1,
        )
        assert viewer.queues["tiny"].num_waiting == 0


async def test_then_only_what_changes_comes(client: Client, worker: FakeWorker) -> None:
    first, second = [await client.session() for _ in range(2)]
    async with viewing(client) as viewer:
        await viewer.until(lambda viewer: all(session.HasField("lane") for session in viewer.sessions.values()))
        await client.append(second, [1, 2])
        changed = set[str]()

        def sees(viewer: Viewer) -> bool:
            changed.update(session.session_id for session in viewer.latest.sessions)
            return viewer.sessions[second].history_length == 2 and not viewer.sessions[second].busy

        await viewer.until(sees)
        assert changed - {first} == {second}
        await client.close(second)
        await viewer.until(lambda viewer: second not in viewer.sessions)
        assert viewer.sessions.keys() == {first}
        assert viewer.beginnings == 1


async def test_what_another_router_does_is_seen_as_well(stack: Stack, client: Client, worker: FakeWorker) -> None:
    other = await stack.router()
    async with viewing(client) as viewer:
        session_id = await other.session()
        await viewer.until(lambda viewer: viewer.sessions.get(session_id, pb.Session()).state == "open")
        await other.append(session_id, [1])
        generating = other.generating(session_id, 1_000_000)
        await viewer.until(lambda viewer: viewer.sessions[session_id].busy)
        generating.cancel()
        await viewer.until(lambda viewer: not viewer.sessions[session_id].busy)
        await other.close(session_id)
        await viewer.until(lambda viewer: not viewer.sessions)


async def test_a_running_answer_is_followed(client: Client, worker: FakeWorker) -> None:
    """Its tokens are announced by nobody."""
    session_id = await client.session()
    await client.append(session_id, [1])
    async with viewing(client) as viewer:
        generating = client.generating(session_id, 1_000_000)
        reading = asyncio.create_task(_read(generating))
        await viewer.until(lambda viewer: viewer.sessions[session_id].history_length > 20)
        await viewer.until(lambda viewer: viewer.sessions[session_id].history_length > 60)
        reading.cancel()
        generating.cancel()


def _has_length(session_id: str, length: int) -> Callable[[Viewer], bool]:
    return lambda viewer: viewer.sessions[session_id].history_length == length


async def _read(call: Any) -> None:
    async for _ in call:
        pass


async def test_a_worker_comes_is_late_and_goes(stack: Stack, client: Client) -> None:
    stack.routers[0]._parts.base.board.late_ms = 200
    async with viewing(client) as viewer:
        assert not viewer.workers
        worker = await stack.worker(client)
        await viewer.until(lambda viewer: "worker-a" in viewer.workers)
        worker.stop_beating()
        await viewer.until(lambda viewer: viewer.workers["worker-a"].last_heartbeat_age_seconds >= 0.2)
        await answer(client.registry.Leave(worker.leave_request()))
        await viewer.until(lambda viewer: not viewer.workers)
        assert viewer.fleet.num_workers == 0


async def test_the_queue_is_seen(stack: Stack) -> None:
    client = await stack.router(admission="queue", queue_seconds=60)
    await stack.worker(client, num_lanes=1)
    holder = await client.session()
    async with viewing(client) as viewer:
        waiting = asyncio.create_task(client.session())
        await viewer.until(lambda viewer: viewer.queues["tiny"].num_waiting == 1)
        assert [(each.tenant, each.num_waiting) for each in viewer.queues["tiny"].tenants] == [("", 1)]
        await viewer.until(lambda viewer: viewer.fleet.num_waiting == 1)
        await client.close(holder)
        second = await waiting
        await viewer.until(lambda viewer: viewer.queues["tiny"].num_waiting == 0 and second in viewer.sessions)


async def test_a_pool_that_nobody_uses_goes(stack: Stack, client: Client, worker: FakeWorker) -> None:
    async with viewing(client) as viewer:
        await answer(client.registry.Leave(worker.leave_request()))
        await viewer.until(lambda viewer: not viewer.queues)


async def test_many_things_come_in_parts(client: Client, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_THINGS_AT_ONCE", 1)
    session_ids = {await client.session() for _ in range(3)}
    viewer = Viewer(client)
    await viewer.next()
    assert viewer.latest.begins
    assert viewer.latest.continues
    await viewer.until(lambda viewer: not viewer.latest.continues)
    assert viewer.num_events == 1 + 1 + 3
    assert viewer.sessions.keys() == session_ids
    viewer.call.cancel()


async def test_a_slow_viewer_gets_the_latest_and_no_backlog(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    async with viewing(client) as viewer, viewing(client, 60.0) as slow:
        await slow.until(lambda _: True)
        for length in range(1, 31):
            await client.append(session_id, [length])
            await viewer.until(_has_length(session_id, length))
        assert slow.num_events < 5
    async with viewing(client, 1.0) as patient:
        assert patient.sessions[session_id].history_length == 30


async def test_all_viewers_share_one_reading_which_ends_with_the_last(
    stack: Stack, client: Client, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_reads = 0
    pools = WatchStore.pools

    async def counted(store: WatchStore) -> Any:
        nonlocal num_reads
        num_reads += 1
        return await pools(store)

    monkeypatch.setattr(WatchStore, "pools", counted)
    assert await num_listeners(stack) == 0
    async with viewing(client), viewing(client), viewing(client):
        assert await num_listeners(stack) == 1

    async def nobody_listens() -> bool:
        return await num_listeners(stack) == 0

    await eventually(nobody_listens)
    num_then = num_reads
    await asyncio.sleep(0.2)
    assert num_reads == num_then


async def test_sessions_that_are_idle_are_not_read_again(
    client: Client, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = {await client.session() for _ in range(3)}
    busy = await client.session()
    read: list[str] = []
    sessions = WatchStore.sessions

    async def noted(store: WatchStore, session_ids: Any) -> Any:
        read.extend(session_ids)
        return await sessions(store, session_ids)

    async with viewing(client) as viewer:
        await viewer.until(lambda viewer: all(session.HasField("lane") for session in viewer.sessions.values()))
        monkeypatch.setattr(WatchStore, "sessions", noted)
        for length in range(1, 6):
            await client.append(busy, [length])
            await viewer.until(_has_length(busy, length))
    assert busy in read
    assert not idle & set(read)


async def test_where_nothing_changes_that_is_told_now_and_then(
    client: Client, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boards.Board, "quiet_seconds", 0.05)
    async with viewing(client) as viewer:
        await viewer.until(lambda viewer: not viewer.latest.ListFields()[1:])
        at = viewer.latest.at
        await viewer.until(lambda viewer: not viewer.latest.ListFields()[1:] and viewer.latest.at > at)


@pytest.mark.parametrize("seconds", [-1.0, 0.01, 61.0, float("nan")])
async def test_an_interval_that_makes_no_sense_is_refused(client: Client, seconds: float) -> None:
    with pytest.raises(InvalidField, match="interval_seconds"):
        await Viewer(client, seconds).next()


async def test_a_router_that_ends_sends_its_viewers_away_at_once(stack: Stack) -> None:
    told = RouterSettings(**(FAST | {"redis": stack.url, "shutdown_grace_seconds": 3600.0}))
    async with AsyncExitStack() as running:
        router = await running.enter_async_context(Router(told))
        async with viewing(stack.client(router.address)) as viewer:
            ending = asyncio.create_task(running.aclose())
            with pytest.raises(Draining):
                await viewer.until(lambda _: False)
            await ending


async def test_a_board_that_is_closed_shows_nothing(stack: Stack) -> None:
    board = boards.Board(None, None, None, late_ms=1)  # type: ignore[arg-type]  # it asks none of them
    board.close()
    with pytest.raises(Draining):
        await anext(board.watch(Sight(None), 0.1))


async def test_where_redis_is_lost_viewers_are_told_and_may_come_again(own_redis: RedisServer) -> None:
    async with stack_on(own_redis.url) as stack:
        client = await stack.router()
        worker = await stack.worker(client)
        session_id = await client.session()
        async with viewing(client) as viewer:
            await asyncio.to_thread(own_redis.stop)
            with pytest.raises(StoreUnavailable):
                await viewer.until(lambda _: False)
        await asyncio.to_thread(own_redis.start)
        assert worker.lanes

        async def sees() -> bool:
            try:
                async with viewing(client) as viewer:
                    return session_id in viewer.sessions
            except StoreUnavailable:
                return False

        assert await eventually(sees)


async def test_what_redis_has_evicted_is_gone(stack: Stack, client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    async with viewing(client) as viewer:
        assert session_id in viewer.sessions
        await stack.redis.delete(f"kakeya:{{tiny}}:session:{session_id}")
        await stack.redis.zadd("kakeya:{tiny}:expiry", {session_id: 1})  # the reaper finds out
        await viewer.until(lambda viewer: session_id not in viewer.sessions)


async def test_where_only_the_subscription_is_lost_viewers_are_told(own_redis: RedisServer) -> None:
    """Something may have been missed, although all else is answered."""
    async with stack_on(own_redis.url) as stack:
        client = await stack.router()
        await stack.worker(client)
        async with viewing(client) as viewer:
            await stack.redis.client_kill_filter(_type="pubsub")
            with pytest.raises(StoreUnavailable):
                await viewer.until(lambda _: False)
            assert (await client.append(await client.session(), [1])).history_length == 1
