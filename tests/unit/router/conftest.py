from collections.abc import AsyncIterator, Iterator
from functools import cache
from types import SimpleNamespace

import pytest
import redis.utils

from kakeya_router import program
from kakeya_router.lanes import search
from kakeya_router.operations import operations, recovery
from kakeya_router.store import connection
from tests.known_plugins import plugins_looked_up_once
from tests.redis_server import RedisServer, redis_server
from tests.service_logs import logs_as_they_were, plain_logs
from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.keyed import Keyed, keyed_on
from tests.unit.router.lapses import Clock, Waits
from tests.unit.router.stack import LONG_SECONDS, Client, Stack, stack_on


@pytest.fixture(scope="session", autouse=True)
def _plain_logs() -> None:
    plain_logs()


@pytest.fixture(scope="session", autouse=True)
def _plugins_are_looked_up_once() -> Iterator[None]:
    with plugins_looked_up_once(), pytest.MonkeyPatch.context() as patch:
        # redis-py reads its own version for each connection, which takes a millisecond.
        patch.setattr(redis.utils, "get_lib_version", cache(redis.utils.get_lib_version))
        yield


@pytest.fixture(autouse=True)
def _logs_as_they_were(_plain_logs: None) -> Iterator[None]:
    with logs_as_they_were():
        yield


@pytest.fixture(autouse=True)
def _patience() -> Iterator[None]:
    """What the router waits for, and a busy machine may miss; tests that are about that set it themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "_SETTLE_SECONDS", LONG_SECONDS / 3)
        patch.setattr(connection, "_LAST_ANSWERS_SECONDS", LONG_SECONDS)
        patch.setattr(recovery, "_ASK_SECONDS", LONG_SECONDS)
        patch.setattr(recovery, "_CONFIRM_SECONDS", LONG_SECONDS)
        patch.setattr(operations, "_STOP_SECONDS", LONG_SECONDS)
        yield


@pytest.fixture
def clock() -> Iterator[Clock]:
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock()
        patch.setattr(connection, "time", SimpleNamespace(monotonic=clock))
        yield clock


@pytest.fixture
def waits() -> Iterator[Waits]:
    with pytest.MonkeyPatch.context() as patch:
        waits = Waits()
        patch.setattr(search, "asyncio", waits)
        yield waits


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture
def redis_url(shared_redis: RedisServer) -> str:
    """Of a Redis without data, for tests that leave it running."""
    with redis.Redis.from_url(shared_redis.url, protocol=2) as client:
        client.flushall()
    return shared_redis.url


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A Redis for tests that stop or pause it."""
    with redis_server() as server:
        yield server


@pytest.fixture
async def stack(redis_url: str) -> AsyncIterator[Stack]:
    async with stack_on(redis_url) as stack:
        yield stack


@pytest.fixture
async def client(stack: Stack) -> Client:
    return await stack.router()


@pytest.fixture
async def worker(stack: Stack, client: Client) -> FakeWorker:
    return await stack.worker(client)


@pytest.fixture
async def keyed(redis_url: str) -> AsyncIterator[Keyed]:
    async with keyed_on(redis_url) as keyed:
        yield keyed
