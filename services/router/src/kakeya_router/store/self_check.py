"""What is wrong with a Redis though it answers: looked at whenever a router begins to serve from it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from redis import exceptions

from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.keys import SCHEMA
from kakeya_router.store.scripts import scripts
from kakeya_shared.errors.tree import StoreUnavailable

OLDEST: Final = (6, 2)
"""The version with which all of this is tested, and newer ones."""

_CALLED = re.compile(r"redis\.call\('([A-Z]+)'")
# What no script runs. Each is given a key, or a channel, first.
_PLAIN = frozenset(
    {"DEL", "EXISTS", "GET", "GETRANGE", "HDEL", "HGET", "HGETALL", "HKEYS", "HMGET", "HSET", "SADD", "SET", "SMEMBERS"}
    | {"SRANDMEMBER", "SREM", "SUBSCRIBE", "ZCARD", "ZRANGE", "ZRANGEBYSCORE", "ZREM", "ZSCAN"}
)
# Their first argument is no key.
_WITHOUT_KEYS = frozenset({"TIME"})
_AS_IT_IS_LOST = "what Redis has acknowledged since its last snapshot is lost with its process"


def commands() -> list[str]:
    """All that a router runs on its keys and channels."""
    called = (command for script in scripts().values() for command in _CALLED.findall(script.text))
    return sorted(_PLAIN.union(called) - _WITHOUT_KEYS)


async def check_rights(redis: RedisConnection) -> None:
    """Raises StoreUnavailable: the router's user may not run what it needs, all of which is named."""
    forbidden = await redis.script("find_forbidden", [SCHEMA], commands=commands())
    if forbidden:
        raise StoreUnavailable(
            f"Redis refuses this router: its user may not run {', '.join(forbidden)}; see docs/redis.md",
            retry_after_seconds=1.0,
        )


async def faults(redis: RedisConnection) -> list[str]:
    """What may cost sessions some day, in a sentence each; what the router's user may not ask is not looked at.

    Raises StoreUnavailable.
    """
    try:
        of_each = await redis.call(lambda redis: redis.everywhere("INFO"))
    except exceptions.ResponseError:
        return []
    except StoreUnavailable as error:
        if isinstance(error.__cause__, exceptions.NoPermissionError):
            return []
        raise
    return [*dict.fromkeys(fault for facts in of_each for fault in _faults(facts, redis.has_replicas))]


def _faults(facts: Mapping[str, Any], has_replicas: bool) -> Iterator[str]:
    version = str(facts.get("redis_version", ""))
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers and numbers < OLDEST:
        yield f"Redis {version} is older than {'.'.join(map(str, OLDEST))}, with which routers are tested"
    policy = str(facts.get("maxmemory_policy", ""))
    if int(facts.get("maxmemory", 0)) and policy != "noeviction":
        yield f"maxmemory-policy is {policy}: it drops keys when its memory is full, and with them sessions"
    if int(facts.get("aof_enabled", 1)) == 0:
        yield f"appendonly is no: {_AS_IT_IS_LOST}"
    elif facts.get("aof_last_write_status", "ok") != "ok":
        yield "it cannot write its append-only file"
    if facts.get("rdb_last_bgsave_status", "ok") != "ok":
        yield "it could not write its last snapshot"
    if has_replicas and facts.get("role") == "master" and "min_slaves_good_slaves" not in facts:
        yield "min-replicas-to-write is 0: a primary that is cut off takes writes, which are lost"
