from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from tests.redis_server import RedisServer, redis_server
from tests.service_logs import logs_as_they_were, plain_logs
from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.keyed import Keyed, keyed_on
from tests.unit.router.stack import Client, Stack, stack_on


@pytest.fixture(scope="session", autouse=True)
def _plain_logs() -> None:
    plain_logs()


@pytest.fixture(autouse=True)
def _logs_as_they_were(_plain_logs: None) -> Iterator[None]:
    with logs_as_they_were():
        yield


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
