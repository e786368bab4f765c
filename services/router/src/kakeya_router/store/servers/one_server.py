"""A connection to one server, as all connections here are made."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff


def pool_of(url: str, timeout_seconds: float, *, is_text: bool) -> Any:  # redis-py types few of its methods
    """Makes connections whose answers are texts, or bytes, and which try nothing twice.

    Args:
        timeout_seconds: of a connection's begin; an answer has none.
    """
    return ConnectionPool.from_url(
        url,
        decode_responses=is_text,
        protocol=2,
        socket_timeout=None,
        socket_connect_timeout=timeout_seconds,
        retry=Retry(NoBackoff(), 0),
    )


@asynccontextmanager
async def asking(url: str, timeout_seconds: float) -> AsyncGenerator[Any, None]:
    """A connection for some questions. Raises what redis-py raises."""
    connection = pool_of(url, timeout_seconds, is_text=True).make_connection()
    try:
        await connection.connect()
        yield connection
    finally:
        await connection.disconnect(nowait=True)


async def told(connection: Any, *command: str) -> Any:
    """What is answered, as it stands there. Raises what redis-py raises."""
    await connection.send_command(*command)
    return await connection.read_response()
