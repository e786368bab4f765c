"""The control stream of one worker that ends at this router, and the connections that came by it."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

import structlog

from kakeya_router.store.fleet.worker_store import Identity
from kakeya_shared.tunnel.connection import Connection, Connections

_log = structlog.get_logger()

# A worker connects within a round trip or two; one that does not is tried by another way.
_DIAL_SECONDS = 3.0


class Failed(NamedTuple):
    """A worker's word that it could not make a connection."""

    dial: bytes
    why: str


class NoWay(Exception):
    """The worker cannot be reached like this now."""


class Tunnel:
    """Ended, it ends its connections with it.

    Attributes:
        worker: whose it is.
        heard_at: when the worker was last heard, on the monotonic clock.
    """

    def __init__(self, worker: Identity) -> None:
        self.worker = worker
        self.heard_at = time.monotonic()
        self._wanted = asyncio.Queue[bytes]()
        self._dials: dict[bytes, asyncio.Future[Connection]] = {}
        self._connections = Connections()
        self._is_ended = False

    async def next_dial(self, seconds: float) -> bytes | None:
        """The next connection that is wanted; None: none is within so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                return await self._wanted.get()
        except TimeoutError:
            return None

    async def hear(self, said: AsyncIterator[Failed | None]) -> None:
        """Takes what the worker says until it says no more; None is a beat."""
        async for failed in said:
            self.heard_at = time.monotonic()
            if failed is not None:
                self._fail(failed.dial, f"the worker could not connect: {failed.why}")

    async def dial(self) -> Connection:
        """A connection to the worker's server. Raises NoWay."""
        if self._is_ended:
            raise NoWay("the tunnel has ended")
        dial = secrets.token_bytes(16)
        answer = self._dials[dial] = asyncio.get_running_loop().create_future()
        self._wanted.put_nowait(dial)
        try:
            async with asyncio.timeout(_DIAL_SECONDS):
                connection: Connection = await answer
                return connection
        except TimeoutError:
            _turn_away(answer)
            raise NoWay(f"the worker did not connect to the tunnel port within {_DIAL_SECONDS:g} s") from None
        except asyncio.CancelledError:
            _turn_away(answer)
            raise
        finally:
            del self._dials[dial]

    def answer(self, dial: bytes, connection: Connection) -> bool:
        """Gives a connection to who asked for it; False: nobody does, or not any more."""
        asked = self._dials.get(dial)
        if asked is None or asked.done():
            return False
        self._connections.add(connection)
        asked.set_result(connection)
        return True

    async def end(self) -> None:
        """Ends its connections, and what waits for some."""
        self._is_ended = True
        for dial in list(self._dials):
            self._fail(dial, "the tunnel has ended")
        await self._connections.end()

    def _fail(self, dial: bytes, why: str) -> None:
        asked = self._dials.get(dial)
        if asked is not None and not asked.done():
            asked.set_exception(NoWay(why))
            _log.info("a worker was not dialled", worker_id=self.worker.worker_id, reason=why)


def _turn_away(answer: "asyncio.Future[Connection]") -> None:
    """Ends a connection that came in the moment in which nobody wanted it any more."""
    if not answer.cancelled() and answer.done() and answer.exception() is None:
        answer.result().abort()
