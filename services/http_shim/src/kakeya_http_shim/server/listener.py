"""The listening server: from the first connection to the end of the last answer."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import structlog
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from kakeya_http_shim.server.protocol import MAX_HEAD_BYTES, Connection, ConnectionLimits
from kakeya_http_shim.server.server_tls import server_context
from kakeya_http_shim.settings import HttpSettings
from kakeya_shared.process.service_process import StartError
from kakeya_shared.settings.addresses import HostPort

_BACKLOG = 2048
_LAST_WORDS_SECONDS = 1.0
"""For answers to say that they are cut short, and to put away what they have."""
_CLEANUP_SECONDS = 5.0
"""For what a request that was cut has to put away."""

_log = structlog.get_logger()


@asynccontextmanager
async def serving(app: ASGIApp, settings: HttpSettings, *, cut_short: asyncio.Event) -> AsyncIterator[HostPort]:
    """`listening`, as the settings have it. Raises StartError."""
    limits = ConnectionLimits(
        head_timeout_seconds=settings.head_timeout_seconds,
        send_timeout_seconds=settings.send_timeout_seconds,
        connection_idle_seconds=settings.connection_idle_seconds,
        max_connections=settings.max_connections,
    )
    async with listening(
        app,
        settings.bind,
        tls=server_context(settings),
        limits=limits,
        grace_seconds=settings.shutdown_grace_seconds,
        cut_short=cut_short,
    ) as address:
        yield address


@asynccontextmanager
async def listening(
    app: ASGIApp,
    bind: str,
    *,
    tls: ssl.SSLContext | None = None,
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008  # it is frozen
    grace_seconds: float = 10.0,
    cut_short: asyncio.Event | None = None,
) -> AsyncIterator[HostPort]:
    """Serves `app` inside; yields the address with the real port.

    At the end nobody is accepted any more and requests that are under way may go on for `grace_seconds`; then
    `cut_short` is set, and what is left a moment later is cut: its tasks are cancelled.

    uvicorn's `Server` is not used: it takes the signals to itself, polls, and logs what it cuts as failures.

    Args:
        bind: HOST:PORT; port 0 takes a free one.
        tls: None for plaintext.
        cut_short: for answers that can still say why they end.

    Raises:
        StartError: the address cannot be listened on.
    """
    state = ServerState()
    stopping = asyncio.Event()
    address = HostPort.parse(bind)
    config = _config(app, limits)
    server = await _listen(lambda: Connection(config, state, limits, stopping), address, tls, limits)
    try:
        yield HostPort(address.host, server.sockets[0].getsockname()[1])
    finally:
        stopping.set()
        server.close()
        await _end(state, grace_seconds, cut_short or asyncio.Event())


def _config(app: ASGIApp, limits: ConnectionLimits) -> Config:
    config = Config(
        app,
        interface="asgi3",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # no warnings about what strangers send
        access_log=False,
        proxy_headers=False,
        workers=1,
        timeout_keep_alive=limits.connection_idle_seconds,  # type: ignore[arg-type]  # it is a timer's
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        reset_contextvars=True,  # else one request's request id and span would be there for the connection's next
    )
    config.load()
    return config


async def _listen(
    connection: Callable[[], Connection], address: HostPort, tls: ssl.SSLContext | None, limits: ConnectionLimits
) -> asyncio.Server:
    """Raises StartError."""
    try:
        return await asyncio.get_running_loop().create_server(
            connection,
            address.host,
            address.port,
            ssl=tls,
            backlog=_BACKLOG,
            ssl_handshake_timeout=limits.head_timeout_seconds if tls else None,
            ssl_shutdown_timeout=_CLEANUP_SECONDS if tls else None,
        )
    except OSError as error:
        raise StartError(f"cannot listen on {address}: {_reason(error)}") from error
    except UnicodeError as error:  # no name of a host
        raise StartError(f"cannot listen on {address}: {error}") from error


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror) or error.errno is None:
        return error.strerror or str(error)
    return os.strerror(error.errno)


async def _end(state: ServerState, grace_seconds: float, cut_short: asyncio.Event) -> None:
    connections = [connection for connection in state.connections if isinstance(connection, Connection)]
    ends = [*state.tasks, *(connection.closed for connection in connections)]
    for connection in connections:
        connection.shutdown()
    try:
        await _wait(ends, grace_seconds)
        cut_short.set()
        await _wait(ends, _LAST_WORDS_SECONDS)
    finally:  # however little of that time there was
        await _cut(list(state.tasks), connections)


async def _cut(tasks: list[asyncio.Task[None]], connections: list[Connection]) -> None:
    for task in tasks:
        task.cancel()
    await _wait(tasks, _CLEANUP_SECONDS)
    for connection in connections:
        connection.transport.abort()
    await _wait([*tasks, *(connection.closed for connection in connections)], _CLEANUP_SECONDS)
    if num_left := sum(not task.done() for task in tasks):
        _log.error("requests do not end although they were cancelled", requests=num_left)


async def _wait(ends: Sequence[asyncio.Future[None]], seconds: float) -> None:
    if ends:
        await asyncio.wait(ends, timeout=seconds)
