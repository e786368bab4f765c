"""The one way to Redis: short timeouts, the scripts, and errors as the tree's."""

import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from importlib import resources
from typing import Any, TypeVar

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.client import NEVER_DECODE
from redis.commands.core import AsyncScript

from kakeya_router.detached_tasks import DetachedTasks
from kakeya_shared.errors import StoreUnavailable

T = TypeVar("T")
Argument = str | int | bytes

# All calls are one short command or script. A busy disk may delay an answer for some hundred milliseconds where
# each write is synced; what takes longer than this is an outage.
_TIMEOUT_SECONDS = 1.0
_RETRY_AFTER_SECONDS = 1.0
_MAX_CONNECTIONS = 64
# A few milliseconds for Redis and for this process; a list of thousands must not hold up a heartbeat.
_HASHES_AT_ONCE = 500
_PRELUDE = "prelude.lua"

# Refused, reset, still loading its data, or silent.
_NO_ANSWER = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
# Redis was not asked: all connections were busy for as long as a caller waits.
_NO_CONNECTION = "No connection available."
# Alive and not able to take writes: a replica in the middle of a fail-over, a full disk or memory, a cluster that
# lacks nodes. A script's error carries the code in its text, an error of a plain command in its type.
_NO_WRITES = (exceptions.ReadOnlyError, exceptions.OutOfMemoryError, exceptions.ClusterDownError)
_NO_WRITES_CODES = re.compile(r"\b(READONLY|MISCONF|OOM|NOREPLICAS|MASTERDOWN|CLUSTERDOWN)\b")


class RedisConnection:
    """Runs commands and Lua scripts; remembers since when Redis answers.

    Nothing is retried: after a time-out nobody knows whether a script ran, and callers differ in what then is
    right. Each call runs in a task of its own, to its end, which the time-outs keep near: a caller's cancellation
    must not enter redis-py, which drops the connection and can turn the cancellation into a time-out.
    """

    def __init__(self, url: str) -> None:
        pool: BlockingConnectionPool = BlockingConnectionPool.from_url(
            url,
            decode_responses=True,
            protocol=2,
            socket_timeout=_TIMEOUT_SECONDS,
            socket_connect_timeout=_TIMEOUT_SECONDS,
            timeout=_TIMEOUT_SECONDS,
            max_connections=_MAX_CONNECTIONS,
            retry=Retry(NoBackoff(), 0),
        )
        self._redis = Redis(connection_pool=pool)
        self._scripts = {name: self._redis.register_script(text) for name, text in _lua_files()}
        self._answers_since: float | None = None
        self._calls = DetachedTasks()

    async def aclose(self) -> None:
        await self._calls.drain(2 * _TIMEOUT_SECONDS)
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    async def call(self, command: Callable[[Any], Awaitable[T]]) -> T:
        """Runs `command(redis)`.

        Raises:
            StoreUnavailable: Redis does not answer, or cannot take writes now.
        """
        return await self._calls.complete(self._guarded(command(self._redis)))

    async def now_ms(self) -> int:
        """Redis's clock, the only one that leases go by. Raises StoreUnavailable."""
        seconds, microseconds = await self.call(lambda redis: redis.time())
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def script(self, name: str, keys: Sequence[str], arguments: Iterable[Argument]) -> Any:
        """Runs lua/`name`.lua; raises StoreUnavailable."""
        call = self._scripts[name](keys=list(keys), args=list(arguments))
        return await self._calls.complete(self._guarded(call))

    async def script_bytes(self, name: str, keys: Sequence[str], arguments: Iterable[Argument]) -> Any:
        """As `script`; every text of the answer comes as bytes."""
        return await self._calls.complete(self._guarded(self._raw(self._scripts[name], [*keys], [*arguments])))

    async def read_bytes(self, name: str, start: int, end: int) -> bytes:
        """Bytes start..end-1 of a string; empty where there is none. Raises StoreUnavailable."""
        if start >= end:
            return b""
        read: bytes = await self.call(
            lambda redis: redis.execute_command("GETRANGE", name, start, end - 1, **{NEVER_DECODE: True})
        )
        return read

    async def pipeline(self, add: Callable[["Batch"], Awaitable[None]]) -> list[Any]:
        """Sends the commands that `add` queues in one round trip; not atomic. Raises StoreUnavailable."""
        return await self._calls.complete(self._guarded(self._execute(add)))

    async def hashes(self, names: Sequence[str]) -> list[dict[str, str]]:
        """Each hash, empty where there is none; some at a time, so that nobody waits for all.

        Raises StoreUnavailable.
        """
        found: list[dict[str, str]] = []
        for start in range(0, len(names), _HASHES_AT_ONCE):
            found += await self.pipeline(partial(_read_hashes, names[start : start + _HASHES_AT_ONCE]))
        return found

    def answers_for(self, seconds: float) -> bool:
        """Whether Redis has answered without a failure for so long."""
        return self._answers_since is not None and time.monotonic() - self._answers_since >= seconds

    async def _raw(self, script: AsyncScript, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        redis: Any = self._redis
        rest = (len(keys), *keys, *arguments)
        try:
            return await redis.execute_command("EVALSHA", script.sha, *rest, **{NEVER_DECODE: True})
        except exceptions.NoScriptError:
            return await redis.execute_command("EVAL", script.script, *rest, **{NEVER_DECODE: True})

    async def _execute(self, add: Callable[["Batch"], Awaitable[None]]) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipe:
            await add(Batch(pipe, self._scripts))
            return await pipe.execute()

    async def _guarded(self, answer: Awaitable[T]) -> T:
        try:
            result = await answer
        except (*_NO_ANSWER, exceptions.ResponseError) as error:
            if isinstance(error, exceptions.ResponseError) and not _takes_no_writes(error):
                raise
            if str(error) != _NO_CONNECTION:
                self._answers_since = None
            raise StoreUnavailable(
                f"Redis does not answer ({type(error).__name__})", retry_after_seconds=_RETRY_AFTER_SECONDS
            ) from error
        if self._answers_since is None:
            self._answers_since = time.monotonic()
        return result


class Batch:
    """Commands and scripts that wait for one round trip."""

    def __init__(self, pipe: "Pipeline", scripts: dict[str, AsyncScript]) -> None:
        self.redis: Any = pipe
        self._scripts = scripts

    async def script(self, name: str, keys: Sequence[str], arguments: Iterable[Argument]) -> None:
        await self._scripts[name](keys=list(keys), args=list(arguments), client=self.redis)


async def _read_hashes(names: Sequence[str], batch: Batch) -> None:
    for name in names:
        batch.redis.hgetall(name)


def _takes_no_writes(error: exceptions.ResponseError) -> bool:
    return isinstance(error, _NO_WRITES) or _NO_WRITES_CODES.search(str(error)) is not None


def _lua_files() -> Iterable[tuple[str, str]]:
    """Name and text of each script, with the prelude before it."""
    folder = resources.files("kakeya_router.store").joinpath("lua")
    prelude = folder.joinpath(_PRELUDE).read_text("utf-8")
    for file in folder.iterdir():
        if file.name != _PRELUDE:
            yield file.name.removesuffix(".lua"), prelude + file.read_text("utf-8")
