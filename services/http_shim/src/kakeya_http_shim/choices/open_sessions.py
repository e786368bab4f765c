"""Sessions of requests: every one that was opened is closed, whatever becomes of its request."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import structlog

from kakeya import AsyncClient, AsyncSession, KakeyaError

_log = structlog.get_logger()

_CLOSE_SECONDS = 1.0
"""How long the end of an answer may wait for its session to be closed."""


class OpenSessions:
    """Opens sessions and closes them in tasks of their own, which nobody's leaving cancels."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def opened(self, client: AsyncClient, **options: Any) -> AsyncIterator[AsyncSession]:
        """A session with these options of `AsyncClient.create_session`. Raises KakeyaError where it cannot be opened.

        Leaving it without an error waits a moment for it to be closed, so that its lane is free for the next request
        of the same client.
        """
        session = await client.create_session(**options)  # closes by itself what it opened for nobody
        try:
            yield session
        finally:
            closing = self._detach(_close(session))
        await asyncio.wait({closing}, timeout=_CLOSE_SECONDS)

    async def drained(self) -> None:
        """Returns when every session that was left is closed, or cannot be."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _detach(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _close(session: AsyncSession) -> None:
    try:
        await session.close()
    except KakeyaError as error:  # its time to live ends it
        _log.warning("a session could not be closed", error=f"{type(error).__name__}: {error}")
