"""Redis behind Sentinel: a router goes to the primary that it names, and what another one takes counts for nothing."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.sentinel import Sentinel

from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.keys import ROOM
from kakeya_router.store.servers import sentinels
from kakeya_router.store.servers.sentinels import Sentinels
from kakeya_router.store.servers.server import GENERATION, Server
from kakeya_router.store.servers.subscription import messages
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_shared.settings.redis_url import RedisUrl
from tests import redis_groups
from tests.redis_groups import NAME, SentinelGroup, asked
from tests.redis_server import RedisServer
from tests.unit.router.lapses import die
from tests.unit.router.stack import LONG_SECONDS, Stack, eventually, stack_on

KEY = "kakeya:counted"


@asynccontextmanager
async def connected(
    url: str, timeout_seconds: float = LONG_SECONDS, num_replicas: int = 0
) -> AsyncIterator[RedisConnection]:
    connection = RedisConnection(url, timeout_seconds, num_replicas=num_replicas)
    try:
        yield connection
    finally:
        await connection.aclose()


async def count(connection: RedisConnection) -> int:
    (number,) = await connection.commands([("INCR", KEY)])
    return int(number)


async def generation(connection: RedisConnection) -> int:
    """Of the server that answers."""
    (said,) = await connection.commands([("ECHO", GENERATION)])
    return int(said)


async def taken(connection: RedisConnection) -> bool:
    try:
        return bool(await count(connection))
    except StoreUnavailable:
        return False


@pytest.fixture
async def stack(group: SentinelGroup) -> AsyncIterator[Stack]:
    """Whose own client follows the primary, too."""
    places = [("127.0.0.1", sentinel.port) for sentinel in group.sentinels]
    async with stack_on(group.url) as stack:
        await stack.redis.aclose()
        asking = Sentinel(places)
        stack.redis = asking.master_for(NAME, decode_responses=True, protocol=2)
        await stack.redis.flushall()
        yield stack
        await stack.redis.connection_pool.disconnect()
        await asking.aclose()


async def test_after_a_failover_that_lost_writes_no_epoch_comes_again_and_the_old_primary_is_left(
    group: SentinelGroup, stack: Stack
) -> None:
    client = await stack.router(redis=group.sentinel_url)
    workers = {name: await stack.worker(client, name) for name in ("worker-a", "worker-b")}
    session_id = await client.session()
    await client.append(session_id, range(30))
    first = workers[(await client.info(session_id)).worker]
    (other,) = set(workers.values()) - {first}
    (replica,), old = group.replicas, group.primary
    async with connected(group.sentinel_url) as careless, connected(group.sentinel_url, num_replicas=1) as careful:
        before = [await generation(connection) for connection in (careless, careful)]
        await asyncio.to_thread(asked, old, "CONFIG SET", "min-replicas-to-write", "0")
        replica.pause()
        await asyncio.to_thread(asked, old, "CLIENT KILL", "TYPE", "replica")  # else it would read all once it goes on
        await die(first)
        await client.append(session_id, [1, 2])  # on the other worker; of its epoch the replica does not hear
        lost = await client.info(session_id)
        old.pause()
        asking = asyncio.ensure_future(count(careful))  # it is written, and nobody else has it
        replica.resume()
        await asyncio.to_thread(group.wait_for_another, old)
        (link,) = careless._redis._links.values()
        assert not link.is_over
        await careless.follow()
        assert link.is_over
        assert [*before, await generation(careless)] == [0, 0, 1]
        old.resume()
        await eventually(lambda: asyncio.to_thread(asked, old, "GET", KEY))
        assert not asking.done()
        await asyncio.to_thread(group.rejoin, old)
        with pytest.raises(StoreUnavailable):
            await asking
        await eventually(lambda: taken(careful))
        assert await count(careful) == 2  # what the old one took counts for nothing

    async def goes_on() -> bool:
        try:
            # What has no answer may have been done; at the length that it expects it is not done twice.
            return bool((await client.append(session_id, [3, 4], expected_history_length=30)).history_length)
        except StoreUnavailable:  # it is away, or waits for its replica
            return False

    await eventually(goes_on)
    info = await client.info(session_id)
    assert info.history_length == 32  # what was lost is none of it
    assert other.lanes[session_id].token_ids == [*range(30), 3, 4]
    assert (lost.epoch >> 41, info.epoch >> 41) == (0, 1)  # whatever the clock of the new primary says


async def test_nothing_is_done_that_too_few_replicas_have(group: SentinelGroup) -> None:
    async with connected(group.sentinel_url, timeout_seconds=2.0, num_replicas=1) as connection:
        await count(connection)
        group.replicas[0].pause()
        with pytest.raises(StoreUnavailable, match="takes no writes"):
            await count(connection)
        group.replicas[0].resume()
        await eventually(lambda: taken(connection))


async def test_messages_come_from_the_primary(group: SentinelGroup) -> None:
    heard = messages(group.sentinel_url, LONG_SECONDS, ROOM)
    assert await anext(heard) == ""
    await asyncio.to_thread(asked, group.primary, "PUBLISH", ROOM, "tiny")
    assert await anext(heard) == "tiny"
    await heard.aclose()


async def test_a_server_that_has_become_a_replica_is_left(own_redis: RedisServer) -> None:
    async with (
        connected(own_redis.url) as connection,
        redis.asyncio.Redis.from_url(own_redis.url, protocol=2) as admin,
    ):
        await count(connection)
        (link,) = connection._redis._links.values()
        await admin.execute_command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(StoreUnavailable, match="READONLY"):
            await count(connection)
        assert link.is_over
        await eventually(lambda: _ended(link))
        await admin.execute_command("REPLICAOF", "NO", "ONE")
        assert await count(connection) == 2


async def _ended(link: Any) -> bool:
    return bool(link.has_ended)


async def test_sentinels_that_are_away_are_done_without(group: SentinelGroup) -> None:
    places = f"127.0.0.1:1,127.0.0.1:{group.sentinels[0].port},127.0.0.1:2"
    async with connected(f"redis+sentinel://{places}/{NAME}/1") as connection:
        assert await count(connection) == 1  # in its own database
        await connection.follow()
    async with connected(f"redis+sentinel://127.0.0.1:1/{NAME}") as connection:
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await count(connection)
        await connection.follow()
    async with connected(group.sentinel_url.replace(NAME, "unknown")) as connection:
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await count(connection)
    with pytest.raises(StoreUnavailable):
        await anext(messages(f"redis+sentinel://127.0.0.1:1/{NAME}", LONG_SECONDS, ROOM))


async def test_one_that_names_a_replica_is_not_believed(group: SentinelGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = group.replicas[0]

    async def wrong(_: Sentinels) -> Server:
        return Server(replica.url)

    monkeypatch.setattr(Sentinels, "primary", wrong)
    async with connected(group.sentinel_url) as connection:
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await connection.now_ms()


async def test_an_address_of_before_a_failover_has_no_generation_of_after_it(
    group: SentinelGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = iter([1, 2, 2])

    async def changes(*_: Any) -> int:
        return next(said)

    monkeypatch.setattr(sentinels, "_generation", changes)
    asking = Sentinels(RedisUrl.parse(f"redis+sentinel://127.0.0.1:{group.sentinels[0].port}/{NAME}"), LONG_SECONDS)
    assert (await asking.primary()).generation == 2
    said = iter(range(9))
    with pytest.raises(redis.exceptions.ConnectionError, match="a failover is going on"):
        await asking.primary()


@pytest.mark.heavy
def test_a_replica_that_had_lost_its_primary_long_before_takes_over_in_the_end(
    group: SentinelGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where all Sentinels were held up by a busy machine, and then did nothing for their thirty seconds."""
    monkeypatch.setattr(redis_groups, "_TILT_SECONDS", 1.0)
    (replica,), old = group.replicas, group.primary
    with redis.Redis(port=old.port) as client:
        client.config_set("maxclients", len(client.client_list()) - 1)
        client.execute_command("CLIENT", "KILL", "TYPE", "replica")
        time.sleep(12 * redis_groups.DOWN_MS / 1000)  # it is no good for Sentinel then
    old.kill()
    assert group.wait_for_another(old) is replica
    state = asked(group.sentinels[0], "SENTINEL", "MASTER", NAME)
    # The next failover is as fast as before.
    assert int(state[state.index(b"down-after-milliseconds") + 1]) == redis_groups.DOWN_MS
