"""Commands that hiredis writes are those that redis-py writes, to the byte."""

from typing import Any
from unittest.mock import Mock, call

import hiredis
import pytest
from redis.asyncio import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.connection import AbstractConnection

from kakeya_router.store.connection import RedisConnection, packing

COMMANDS: list[tuple[Any, ...]] = [
    ("PING",),
    ("CLIENT SETINFO", "LIB-NAME", "redis-py"),
    ("EVALSHA", "a" * 40, 2, "kakeya:{default}:sessions", "kakeya:{default}:queue", "", 0, -1, 1 << 53, "naïve ✓"),
    ("SET", "key with words", b"\x00\xff\r\n", "PX", 1.5),
    ("SET", "long", "x" * 100_000),
]


@pytest.mark.parametrize("connection", [Connection, SSLConnection, UnixDomainSocketConnection])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_they_are_the_same_bytes(connection: type[AbstractConnection], command: tuple[Any, ...]) -> None:
    made = packing(connection)()
    assert isinstance(made, connection)
    assert b"".join(made.pack_command(*command)) == b"".join(connection().pack_command(*command))


async def test_a_router_has_its_commands_written_so(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Mock(side_effect=hiredis.pack_command)
    monkeypatch.setattr(hiredis, "pack_command", write)
    connection = RedisConnection(redis_url)
    assert await connection.now_ms() > 0
    await connection.aclose()
    assert call(("TIME",)) in write.call_args_list
