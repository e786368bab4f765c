from collections.abc import AsyncIterator

import pytest

from tests.unit.router.store.script_world import WORKER, Recorder, World


@pytest.fixture
async def world(redis_url: str) -> AsyncIterator[World]:
    world = World(Recorder(redis_url))
    assert (await world.workers.join(WORKER)).outcome == "joined"
    yield world
    await world.redis.aclose()
