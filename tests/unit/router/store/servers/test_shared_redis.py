"""Many calls over one connection: whose answer is whose, and what becomes of all where it breaks."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis.asyncio
from redis import exceptions
from redis.client import NEVER_DECODE

from kakeya_router.store.servers.shared_redis import SharedRedis
from tests.redis_server import RedisServer
from tests.unit.router.stack import LONG_SECONDS, eventually

COMMANDS: list[tuple[Any, ...]] = [
    ("PING",),
    ("CLIENT SETINFO", "LIB-NAME", "redis-py"),
    ("EVALSHA", "a" * 40, 2, "kakeya:{default}:sessions", "kakeya:{default}:queue", "", 0, -1, 1 << 53, "naïve ✓"),
    ("SET", "key with words", b"\x00\xff\r\n", "PX", 1.5),
    ("SET", "long", "x" * 100_000),
]


@asynccontextmanager
async def shared(url: str, timeout_seconds: float = LONG_SECONDS) -> AsyncIterator[SharedRedis]:
    client = SharedRedis(url, timeout_seconds)
    try:
        yield client
    finally:
        await client.drain(0)


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


@asynccontextmanager
async def scripted(serve: Serve) -> AsyncIterator[str]:
    """The URL of a server that says what `serve` says. It is silent then, until its client goes."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
            await reader.read()
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    finally:
        server.close()


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As redis-py begins: it tells its name and its version."""
    for _ in range(2):
        await reader.readuntil(b"SETINFO")
        writer.write(b"+OK\r\n")


@pytest.fixture
async def admin(own_redis: RedisServer) -> AsyncIterator["redis.asyncio.Redis"]:
    async with redis.asyncio.Redis.from_url(own_redis.url, protocol=2) as client:
        yield client


async def test_each_has_its_own_answer_over_one_connection(own_redis: RedisServer) -> None:
    async with shared(own_redis.url) as client:
        assert await asyncio.gather(*(client.echo(str(number)) for number in range(500))) == [
            str(number) for number in range(500)
        ]
        assert len(await client.client_list()) == 1


async def test_answers_are_those_of_redis_py(redis_url: str) -> None:
    async with shared(redis_url) as client, redis.asyncio.Redis.from_url(redis_url, decode_responses=True) as plain:
        await client.hset("hash", mapping={"a": "1"})
        await client.zadd("ranks", {"one": 1.5})
        for each in (client, plain):
            assert await each.hgetall("hash") == {"a": "1"}
            assert [tuple(pair) for pair in await each.zrange("ranks", 0, -1, withscores=True)] == [("one", 1.5)]
            assert await each.exists("hash", "ranks", "none") == 2
            assert await each.get("none") is None
        assert await client.execute_command("GET", "none", **{NEVER_DECODE: True}) is None
        await client.set("raw", b"\xff\x00")
        assert await client.execute_command("GET", "raw", **{NEVER_DECODE: True}) == b"\xff\x00"
        assert await client.execute([("HGETALL", "hash"), ("PING",)]) == [{"a": "1"}, True]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
async def test_commands_are_written_as_redis_py_writes_them(command: tuple[Any, ...]) -> None:
    expected = b"".join(redis.asyncio.Connection().pack_command(*command))
    is_written = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        written = b""
        while not written.endswith(expected):
            written += await reader.read(1 << 16)
        is_written.set()

    async with scripted(serve) as url, shared(url) as client:
        asking = asyncio.ensure_future(client.execute_command(*command))
        await asyncio.wait_for(is_written.wait(), LONG_SECONDS)
        asking.cancel()


async def test_a_command_with_parts_that_nobody_can_write_harms_no_other(redis_url: str) -> None:
    async with shared(redis_url) as client:
        for wrong in ([("SET", "a", "1"), ("SET", "b", {})], [("SET", "b", None)]):
            with pytest.raises(TypeError):
                await client.execute(wrong)
        assert await client.execute([("EXISTS", "a", "b"), ("ECHO", "here")]) == [0, "here"]


async def test_an_error_is_that_of_its_command_alone(redis_url: str) -> None:
    async with shared(redis_url) as client:
        found = await asyncio.gather(
            client.echo("before"), client.evalsha("0" * 40, 0), client.echo("after"), return_exceptions=True
        )
        assert [type(each) for each in found] == [str, exceptions.NoScriptError, str]
        with pytest.raises(exceptions.ResponseError, match="unknown command"):
            await client.execute([("SET", "a", "1"), ("NONSENSE",), ("SET", "b", "2")])
        assert await client.exists("a", "b") == 2  # all were sent


async def test_one_that_is_cancelled_leaves_the_others_their_answers(redis_url: str) -> None:
    async with shared(redis_url) as client:
        asked = [asyncio.ensure_future(client.incr("count")) for _ in range(9)]
        await asyncio.sleep(0)
        asked[4].cancel()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [each for each in found if isinstance(each, int)] == [1, 2, 3, 4, 6, 7, 8, 9]
        assert await client.get("count") == "9"  # it ran


async def test_a_silence_ends_all_that_wait_and_the_next_one_connects_anew(own_redis: RedisServer) -> None:
    async with shared(own_redis.url, timeout_seconds=0.3) as client:
        await eventually(lambda: _answers(client))
        await asyncio.to_thread(own_redis.pause)
        found = await asyncio.gather(*(client.echo("gone") for _ in range(3)), return_exceptions=True)
        assert [type(each) for each in found] == [exceptions.TimeoutError] * 3
        assert len({id(each) for each in found}) == 3  # each has a traceback of its own
        await asyncio.to_thread(own_redis.resume)
        await eventually(lambda: _answers(client))


async def _answers(client: SharedRedis) -> bool:
    try:
        return bool(await client.ping())
    except exceptions.RedisError:
        return False


async def test_one_that_does_not_greet_is_given_up(redis_url: str) -> None:
    async def silent(*_: Any) -> None: ...

    async with scripted(silent) as url, shared(url, timeout_seconds=0.2) as client:
        for _ in range(2):
            with pytest.raises((exceptions.TimeoutError, TimeoutError)):
                await client.ping()


async def test_an_answer_has_its_whole_time_after_a_slow_beginning() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1.8)
        await greet(reader, writer)
        await reader.readuntil(b"ECHO")
        await asyncio.sleep(1.8)
        writer.write(b"$3\r\none\r\n")

    async with scripted(serve) as url, shared(url, timeout_seconds=3.0) as client:
        assert await client.echo("?") == "one"


async def test_a_connection_that_nobody_uses_is_known_to_be_gone(
    own_redis: RedisServer, admin: "redis.asyncio.Redis"
) -> None:
    async with shared(own_redis.url) as client:
        number = await client.client_id()
        await admin.client_kill_filter(_id=str(number))
        await eventually(lambda: _has_ended(client))
        assert await client.client_id() > number


async def _has_ended(client: SharedRedis) -> bool:
    return all(link.has_ended for link in client._links.values())


async def test_all_that_wait_hear_that_the_connection_broke() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        await reader.readuntil(b"ECHO")
        writer.write(b"$3\r\none\r\n")
        await writer.drain()
        writer.close()

    async with scripted(serve) as url, shared(url) as client:
        found = await asyncio.gather(*(client.echo("?") for _ in range(3)), return_exceptions=True)
        assert found[0] == "one"
        assert [type(each) for each in found[1:]] == [exceptions.ConnectionError] * 2


async def test_an_answer_to_nothing_is_nobodys() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        await reader.readuntil(b"ECHO")
        writer.write(b"$3\r\none\r\n$3\r\ntwo\r\n")

    async with scripted(serve) as url, shared(url) as client:
        assert await client.echo("?") == "one"
        await eventually(lambda: _has_ended(client))
        assert await client.echo("?") == "one"


async def test_at_its_end_it_waits_for_what_was_asked(redis_url: str) -> None:
    client = SharedRedis(redis_url, LONG_SECONDS)
    asked = [asyncio.ensure_future(client.incr("count")) for _ in range(9)]
    await asyncio.sleep(0)
    await client.drain(LONG_SECONDS)
    assert await asyncio.gather(*asked) == [*range(1, 10)]
    with pytest.raises(exceptions.ConnectionError, match="ended"):
        await client.ping()


async def test_what_follows_from_a_last_answer_is_still_asked(redis_url: str) -> None:
    client = SharedRedis(redis_url, LONG_SECONDS)

    async def twice() -> int:
        await client.incr("count")
        return int(await client.incr("count"))

    asked = asyncio.ensure_future(twice())
    await asyncio.sleep(0)
    await client.drain(LONG_SECONDS)
    assert await asked == 2


async def test_at_its_end_it_waits_for_nobody_who_is_silent(own_redis: RedisServer) -> None:
    client = SharedRedis(own_redis.url, LONG_SECONDS)
    assert await client.ping()
    await asyncio.to_thread(own_redis.pause)
    asked = asyncio.ensure_future(client.ping())
    await asyncio.sleep(0)
    await client.drain(0.1)
    with pytest.raises(exceptions.ConnectionError, match="ended"):
        await asked
    await asyncio.to_thread(own_redis.resume)
