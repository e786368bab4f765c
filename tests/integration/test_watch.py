"""What runs, seen from a router that serves none of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

import kakeya
from kakeya import WatchedRuntime, WatchEvent
from tests.integration.processes import SINK, WINDOW, Runtime, runtime

NUM_KEPT = SINK + WINDOW


@pytest.fixture
def two_routers(model: Path, tmp_path: Path) -> Iterator[Runtime]:
    with runtime(model, tmp_path, num_workers=1) as made:
        made.start_router()
        yield made


class Viewer:
    """What a stream of events comes to."""

    def __init__(self, events: AsyncIterator[WatchEvent]) -> None:
        self.runtime = WatchedRuntime()
        self.bytes_seen: list[tuple[int, int]] = []
        self._events = events

    async def until(self, session_id: str, holds: Callable[[kakeya.WatchedSession], bool]) -> kakeya.WatchedSession:
        """Reads on until it holds of a session; with its history and bytes on the way."""
        while True:
            event = await anext(self._events)
            self.runtime.apply(event)
            shown = self.runtime.sessions.get(session_id)
            if shown is not None:
                self.bytes_seen.append((shown.history_length, shown.kv_live_bytes))
                if holds(shown):
                    return shown


async def test_history_grows_and_memory_does_not(two_routers: Runtime) -> None:
    serving, watching = (router.address for router in two_routers.routers)
    async with kakeya.AsyncClient(serving) as client, kakeya.AsyncClient(watching) as onlooker:
        session = await client.create_session(label="watched")
        viewer = Viewer(onlooker.watch(interval_seconds=0.1))
        for turn in range(4):
            await session.append(range(40 * turn, 40 * turn + 40))
            await session.generate(max_tokens=8).all()
            length = 48 * (turn + 1)
            shown = await viewer.until(
                session.id,
                lambda shown, length=length: shown.history_length == length and not shown.busy,  # type: ignore[misc]
            )
            assert shown.last_turn is not None
            assert shown.last_turn.num_tokens == 8
            assert 0 < shown.last_turn.first_token_seconds <= shown.last_turn.total_seconds
            assert shown.last_turn.prefill_seconds > 0
        info = await session.info()
        (worker,) = viewer.runtime.workers.values()
        assert shown.kv_live_bytes == info.kv_live_bytes == NUM_KEPT * worker.kv_bytes_per_token
        assert shown.retained == info.retained == (range(SINK), range(192 - WINDOW, 192))
        assert all(live == min(length, NUM_KEPT) * worker.kv_bytes_per_token for length, live in viewer.bytes_seen)
        numbered = await viewer.until(session.id, lambda shown: shown.lane is not None)
        assert viewer.runtime.lanes(worker)[numbered.lane or 0] == numbered
        assert viewer.runtime.fleet.kv_live_bytes == info.kv_live_bytes
        await session.close()
        async with asyncio.timeout(60):
            while session.id in viewer.runtime.sessions:
                viewer.runtime.apply(await anext(viewer._events))


async def test_a_worker_that_is_killed_is_seen_to_go_and_its_session_to_be_parked(two_routers: Runtime) -> None:
    async with kakeya.AsyncClient(two_routers.routers[1].address) as client:
        session = await client.create_session()
        await session.append(range(10))
        viewer = Viewer(client.watch(interval_seconds=0.1))
        await viewer.until(session.id, lambda shown: shown.history_length == 10)
        two_routers.workers[0].kill()
        two_routers.lapse(two_routers.workers[0])
        parked = await viewer.until(session.id, lambda shown: shown.state is kakeya.SessionState.PARKED)
        assert (parked.reserved_bytes, parked.kv_live_bytes, parked.lane, parked.retained) == (0, 0, None, ())
        async with asyncio.timeout(60):
            while viewer.runtime.workers:
                viewer.runtime.apply(await anext(viewer._events))
        assert viewer.runtime.fleet.num_lanes == 0
