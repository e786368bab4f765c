"""Local sockets, one for each worker behind a tunnel: a gRPC channel connects there as if the worker listened."""

import asyncio
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from kakeya_router.store.session_record import Incarnation
from kakeya_router.tunnels.tunnel import NoWay
from kakeya_shared.process.detached_tasks import DetachedTasks
from kakeya_shared.tunnel.connection import Connection, Connections, close_server

_log = structlog.get_logger()

_BACKLOG = 16


@dataclass(eq=False)
class Doors:
    """In a directory of this process's alone: nobody else on this host can come in.

    Args:
        dial: makes a connection to a worker, however long that takes; raises NoWay.
    """

    _dial: Callable[[Incarnation], Awaitable[Connection]]
    _tasks: DetachedTasks = field(default_factory=DetachedTasks, init=False)
    _doors: dict[Incarnation, "_Door"] = field(default_factory=dict, init=False)
    _directory: Path | None = field(default=None, init=False)
    _num_made: int = field(default=0, init=False)
    _visitors: Connections = field(default_factory=Connections, init=False)

    def path(self, incarnation: Incarnation) -> Path:
        """Where to connect; the socket is there."""
        door = self._doors.get(incarnation)
        if door is None:
            self._num_made += 1
            path = self._place() / str(self._num_made)
            door = self._doors[incarnation] = _Door(path, lambda visitor: self._let_in(visitor, incarnation))
        return door.path

    async def close(self, incarnation: Incarnation) -> None:
        """Nobody connects there any more; who is connected stays so."""
        door = self._doors.pop(incarnation, None)
        if door is not None:
            await door.close()

    async def aclose(self) -> None:
        """Of all; connections that wait for a worker end."""
        for incarnation in list(self._doors):
            await self.close(incarnation)
        await self._tasks.drain(0)
        await self._visitors.end()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _let_in(self, visitor: Connection, incarnation: Incarnation) -> None:
        if self._visitors.add(visitor):
            leading = self._tasks.start(self._lead(visitor, incarnation))
            visitor.ended.add_done_callback(lambda _: leading.cancel())

    async def _lead(self, visitor: Connection, incarnation: Incarnation) -> None:
        try:
            worker = await self._dial(incarnation)
        except NoWay as error:
            _log.info("a call has no way to its worker", reason=str(error))
            visitor.close()
            return
        visitor.join(worker)

    def _place(self) -> Path:
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="kakeya-router-"))
        return self._directory


class _Door:
    """One socket. Connections that come before its server runs wait in its backlog."""

    def __init__(self, path: Path, let_in: Callable[[Connection], None]) -> None:
        self.path = path
        listening = socket.socket(socket.AF_UNIX)
        listening.setblocking(False)
        listening.bind(str(path))
        listening.listen(_BACKLOG)
        loop = asyncio.get_running_loop()
        self._serving = loop.create_task(loop.create_unix_server(lambda: Connection(let_in), sock=listening))

    async def close(self) -> None:
        await close_server(await self._serving)
        self.path.unlink(missing_ok=True)
