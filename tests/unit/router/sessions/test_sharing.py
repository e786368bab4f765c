"""Many calls that wait for one session: what they ask of Redis, and what is left when they go."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kakeya_router.sessions.sharing import Sharing
from kakeya_router.store.outcomes import ShareSession
from kakeya_router.store.session_record import Claim, SessionRecord
from kakeya_router.store.sessions.session_store import Answer
from kakeya_shared.process.detached_tasks import DetachedTasks
from tests.unit.router.admission_stores import Stores, session_record, stores_on, worker_record
from tests.unit.router.session_stores import SessionStores
from tests.unit.router.stack import eventually


class Counting(SessionStores):
    num_polls = 0

    async def share(self, record: SessionRecord) -> Answer[ShareSession]:
        self.num_polls += 1
        return await super().share(record)


@pytest.fixture
async def stores(redis_url: str) -> AsyncIterator[Stores]:
    async with stores_on(redis_url) as stores:
        await stores.workers.join(worker_record(num_lanes=8))
        yield stores


@pytest.fixture
def store(stores: Stores) -> Counting:
    return Counting(stores.redis)


async def test_a_session_is_polled_once_however_many_wait(stores: Stores, store: Counting) -> None:
    async def polled(number: int) -> bool:
        return store.num_polls >= number

    sharing, record = Sharing(store, DetachedTasks()), session_record("one")
    await stores.reserve("one")
    calls = [asyncio.create_task(sharing.opened(record)) for _ in range(100)]
    await eventually(lambda: polled(3))
    await stores.sessions.mark_open(record, Claim("op"), 1, 4)
    found = await asyncio.gather(*calls)
    assert {shared.session_id for shared in found if shared is not None} == {"p.one"}
    assert store.num_polls <= 5
    again = await sharing.opened(record)
    assert again is not None
    assert again.shared


async def test_what_will_never_be_open_is_told_to_all(stores: Stores, store: Counting) -> None:
    sharing, record = Sharing(store, DetachedTasks()), session_record("one")
    await stores.reserve("one")
    calls = [asyncio.create_task(sharing.opened(record)) for _ in range(3)]
    await stores.close(record)
    assert await asyncio.gather(*calls) == [None, None, None]


async def test_a_poll_ends_with_the_last_that_waits(stores: Stores, store: Counting) -> None:
    tasks = DetachedTasks()
    sharing, record = Sharing(store, tasks), session_record("one")
    await stores.reserve("one")
    calls = [asyncio.create_task(sharing.opened(record)) for _ in range(2)]
    staying = asyncio.create_task(sharing.opened(record))
    await asyncio.sleep(0)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert not staying.done()
    staying.cancel()
    await asyncio.gather(staying, return_exceptions=True)
    async with asyncio.timeout(60):
        await tasks.drain(60)  # nobody shares it, so that its own call may abandon it
