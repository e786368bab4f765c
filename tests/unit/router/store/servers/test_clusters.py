"""A Redis Cluster: each command goes to the node that has its slot now."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest
from redis import exceptions
from redis.asyncio import RedisCluster

from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.keys import CHANGED, ROUTERS, SCHEMA, PoolKeys
from kakeya_router.store.self_check import faults
from kakeya_router.store.servers.server import Server
from kakeya_router.store.servers.shared_cluster import SharedCluster
from kakeya_router.store.servers.slots import SlotMap, _merged, slot_of
from kakeya_router.store.servers.subscription import messages
from kakeya_router.store.session_record import PoolName
from kakeya_shared.errors.tree import StoreUnavailable
from tests.redis_groups import Cluster, asked, redis_cluster
from tests.redis_server import LocalRedis
from tests.unit.router.lapses import die
from tests.unit.router.stack import LONG_SECONDS, Client, Stack, eventually, stack_on

POOLS = ["tiny", "small", "large", "wide"]
"""Whose slots are on three nodes."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with redis_cluster(num_replicas=1) as cluster:
        yield cluster


@pytest.fixture
async def connection(cluster: Cluster) -> AsyncIterator[RedisConnection]:
    connection = RedisConnection(cluster.url, LONG_SECONDS)
    yield connection
    await connection.aclose()


@pytest.fixture
async def stack(cluster: Cluster) -> AsyncIterator[Stack]:
    """Whose own client knows all nodes, too."""
    async with stack_on(cluster.owner(SCHEMA).url) as stack:
        await stack.redis.aclose()
        stack.redis = RedisCluster.from_url(cluster.owner(SCHEMA).url, decode_responses=True, protocol=2)
        stack.url = cluster.url
        yield stack
        await stack.redis.aclose()


def key(pool: str) -> str:
    return PoolKeys(PoolName(pool)).usage


def nodes(cluster: Cluster) -> dict[str, LocalRedis]:
    return {pool: cluster.owner(key(pool)) for pool in POOLS}


async def test_what_is_asked_at_once_comes_back_in_its_order(cluster: Cluster, connection: RedisConnection) -> None:
    assert len({id(node) for node in nodes(cluster).values()}) == 3
    await connection.commands(("HSET", key(pool), "name", pool) for pool in POOLS)
    answers = await connection.commands(
        [("TIME",), *(("HGET", key(pool), "name") for pool in POOLS), ("EXISTS", SCHEMA)]
    )
    assert answers[1:-1] == POOLS
    assert len(answers[0]) == 2
    assert await connection.now_ms()
    for pool, node in nodes(cluster).items():
        assert await asyncio.to_thread(asked, node, "HGET", key(pool), "name") == pool.encode()


async def test_scripts_that_no_node_knows_run_on_each(cluster: Cluster, connection: RedisConnection) -> None:
    for node in nodes(cluster).values():
        await asyncio.to_thread(asked, node, "SCRIPT FLUSH")
    calls = [([PoolKeys(PoolName(pool)).workers], {"worker": key(pool), "fields": ()}) for pool in (*POOLS, *POOLS)]
    assert await connection.scripts("list_workers", calls) == [[]] * 8
    assert await connection.script("announce_router", [ROUTERS], address="h:1", lease_ms=60_000) == ["h:1"]


async def test_each_primary_is_looked_at(connection: RedisConnection) -> None:
    assert [each.split(":")[0] for each in await faults(connection)] == ["min-replicas-to-write is 0"]
    assert len(await connection.call(lambda redis: redis.everywhere("PING"))) == 3


async def test_messages_come_from_all_nodes(cluster: Cluster) -> None:
    heard = messages(cluster.url, LONG_SECONDS, CHANGED)
    assert await anext(heard) == ""
    for pool, node in nodes(cluster).items():
        await asyncio.to_thread(asked, node, "PUBLISH", CHANGED, pool)
    assert {await anext(heard) for _ in POOLS} == {*POOLS}
    await heard.aclose()


async def test_a_slot_that_moves_is_followed(cluster: Cluster, connection: RedisConnection) -> None:
    name = "kakeya:{moving}:usage"
    await connection.commands([("HSET", name, "a", "1")])
    source = cluster.owner(name)
    target = next(node for node in nodes(cluster).values() if node is not source)
    slot = str(slot_of(("GET", name)))
    ids = {node: asked(node, "CLUSTER", "MYID").decode() for node in (source, target)}
    asked(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
    asked(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    new = "kakeya:{moving}:new"  # which the source has not
    await connection.commands([("HSET", new, "b", "2")])
    assert await connection.commands([("HGET", name, "a"), ("HGET", new, "b")]) == ["1", "2"]
    asked(source, "MIGRATE", "127.0.0.1", str(target.port), name, "0", "60000")
    for node in (target, source):
        asked(node, "CLUSTER", "SETSLOT", slot, "NODE", ids[target])
    assert await connection.commands([("HGET", name, "a"), ("HGET", new, "b")]) == ["1", "2"]
    assert cluster.owner(name) is target
    await connection.follow()
    assert await connection.commands([("HGET", name, "a")]) == ["1"]


async def test_a_session_goes_on_when_the_node_of_its_pool_is_lost(
    cluster: Cluster, stack: Stack, connection: RedisConnection
) -> None:
    await connection.commands([("EXISTS", key("tiny"))])
    client = await stack.router(redis=cluster.url, redis_replicas=1)
    workers = {name: await stack.worker(client, name) for name in ("worker-a", "worker-b")}
    session_id = await client.session()
    await client.append(session_id, range(30))
    before = await client.info(session_id)
    old = cluster.owner(key("tiny"))
    old.kill()
    await asyncio.to_thread(cluster.wait_for_another, key("tiny"), old)
    assert await eventually(lambda: _exists(connection))  # which nobody asks to look again
    old.start()  # as the replica without which calls are refused

    async def goes_on() -> int:
        try:
            return int((await client.append(session_id, [1, 2], expected_history_length=30)).history_length)
        except StoreUnavailable:
            await asyncio.sleep(0.1)
            return 0

    assert await eventually(goes_on) == 32
    await die(workers[before.worker])
    await client.append(session_id, [3])
    info = await client.info(session_id)
    assert info.history_length == 33
    assert info.epoch >> 41 > before.epoch >> 41


async def test_pools_of_other_nodes_notice_nothing_when_one_is_lost(cluster: Cluster, stack: Stack) -> None:
    """Each primary in turn, that of what all pools have in common, too.

    Calls go to the router whatever its probe says.
    """
    client = await stack.router(redis=cluster.url)
    for pool in POOLS:
        await stack.worker(client, f"worker-of-{pool}", pool=pool, num_lanes=64)
    sessions: dict[str, str] = {}
    while len(sessions) < len(POOLS):
        session_id = await client.session()
        sessions[session_id.split(".")[0]] = session_id
    lost = 0
    for old in dict.fromkeys(nodes(cluster).values()):
        pools = [pool for pool, node in nodes(cluster).items() if node is not old]
        appends = [asyncio.create_task(_appended(client, sessions[pool])) for pool in pools]
        old.kill()
        lost += 1
        away = next(pool for pool in POOLS if pool not in pools)
        await asyncio.to_thread(cluster.wait_for_another, key(away), old)
        for append in appends:
            append.cancel()
        # An error would be raised here in the place of the cancellation.
        ended = await asyncio.gather(*appends, return_exceptions=True)
        assert [type(each) for each in ended] == [asyncio.CancelledError] * len(pools), ended
        old.start()  # as a replica of the one that took its place
        await asyncio.to_thread(cluster.wait_for_replica, old)
        assert await eventually(partial(_is_served, client, sessions[away]))
    assert lost == 3


async def _appended(client: Client, session_id: str) -> None:
    """Again and again."""
    while True:
        await client.append(session_id, [1])


async def _is_served(client: Client, session_id: str) -> bool:
    try:
        return bool(await client.append(session_id, []))
    except StoreUnavailable:
        await asyncio.sleep(0.1)
        return False


async def _exists(connection: RedisConnection) -> bool:
    try:
        return bool(await connection.commands([("EXISTS", key("tiny"))]))
    except StoreUnavailable:
        return False


@pytest.mark.parametrize("order", [1, -1])
def test_a_node_that_was_cut_off_is_not_believed(order: int) -> None:
    before = {"a": (1, [range(3), range(5, 6)]), "b": (0, [])}
    after = {"a": (1, [range(5, 6)]), "b": (2, [range(3)])}
    found = _merged([before, after][::order])
    assert found.owners == {0: "b", 1: "b", 2: "b", 5: "a"}
    assert found.servers == {"a": Server("a", 1), "b": Server("b", 2)}
    assert found.primaries == ["a", "b"]


async def test_one_that_nobody_serves_or_knows_is_an_outage(cluster: Cluster) -> None:
    away = RedisConnection("redis+cluster://127.0.0.1:1", 1.0)
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await away.now_ms()
    await away.follow()
    await away.aclose()
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await anext(messages("redis+cluster://127.0.0.1:1", 1.0, CHANGED))
    client = SharedCluster(cluster.url, LONG_SECONDS)
    client._map = SlotMap({}, {})
    with pytest.raises(exceptions.ClusterDownError):
        await client.ping()
    await client.drain(0)


async def test_connections_to_what_has_changed_its_place_end(cluster: Cluster, connection: RedisConnection) -> None:
    await connection.commands(("EXISTS", key(pool)) for pool in POOLS)
    links = [*connection._redis._links.values()]
    links[0].server = Server(str(links[0].server and links[0].server.url), 99)
    gone = next(each for each in connection._redis._links if connection._redis._links[each] is links[1])
    connection._redis._links["redis://127.0.0.1:1/0", True] = connection._redis._links.pop(gone)
    await connection.follow()
    assert [link.is_over for link in links] == [True, True, False]
