"""All tunnels that end at this router."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from kakeya_router.metrics import RouterMetrics
from kakeya_router.store.fleet.worker_store import Identity
from kakeya_router.store.session_record import Incarnation
from kakeya_router.tunnels.tunnel import Failed, NoWay, Tunnel
from kakeya_shared.errors.tree import DeadlineExceeded, Draining
from kakeya_shared.process.bulletin import cancelled
from kakeya_shared.tunnel.connection import Connection
from kakeya_shared.tunnel.pace import BEAT_SECONDS, SILENCE_SECONDS

_log = structlog.get_logger()

# A token that is revoked ends its tunnels within a second: tokens are known for 0.8 s.
_CHECK_SECONDS = 0.2

StillAdmitted = Callable[[], Awaitable[None]]
"""Asked again and again; raises what the worker is to be told."""


@dataclass(eq=False)
class Tunnels:
    """Of each worker the latest is used. An older one is a broken one that is not found out yet, or one too many, which
    the worker ends.
    """

    _metrics: RouterMetrics
    _by_incarnation: dict[Incarnation, list[Tunnel]] = field(default_factory=dict, init=False)
    _is_closed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def hold(
        self,
        worker: Identity,
        said: AsyncIterator[Failed | None],
        still_admitted: StillAdmitted,
    ) -> AsyncGenerator[bytes | None, None]:
        """The connections that are wanted of the worker while its tunnel stands, and None for each beat.

        Args:
            said: by the worker; None is a beat of it.

        Raises:
            DeadlineExceeded: nothing was heard of the worker.
            Draining: the router stops.
            as `still_admitted`
        """
        tunnel = Tunnel(worker)
        hearing = asyncio.create_task(tunnel.hear(said))
        hearing.add_done_callback(_heard)
        self._by_incarnation.setdefault(worker.incarnation, []).append(tunnel)
        self._metrics.tunnels.set(self._number)
        _log.info("a tunnel stands", worker_id=worker.worker_id, pool=worker.pool)
        why = "the worker has ended it"
        try:
            told_at = time.monotonic()
            while not hearing.done():
                self._check(tunnel)
                await still_admitted()
                dial = await tunnel.next_dial(_CHECK_SECONDS)
                now = time.monotonic()
                if dial is not None or now >= told_at + BEAT_SECONDS:
                    told_at = now
                    yield dial
            hearing.result()
        except BaseException as error:
            why = str(error) or type(error).__name__
            raise
        finally:
            self._forget(tunnel)
            _log.info("a tunnel has ended", worker_id=worker.worker_id, pool=worker.pool, reason=why)
            await cancelled(hearing)
            await tunnel.end()

    async def dial(self, incarnation: Incarnation) -> Connection:
        """A connection to a worker through its tunnel to this router; raises NoWay."""
        tunnels = self._by_incarnation.get(incarnation)
        if not tunnels:
            raise NoWay("no tunnel of the worker ends here")
        return await tunnels[-1].dial()

    def answer(self, dial: bytes, connection: Connection) -> bool:
        """As `Tunnel.answer`, of whichever asks for it."""
        every = (tunnel for tunnels in self._by_incarnation.values() for tunnel in tunnels)
        return any(tunnel.answer(dial, connection) for tunnel in every)

    def close(self) -> None:
        """Ends all of them; workers are told to go elsewhere."""
        self._is_closed.set()

    @property
    def _number(self) -> int:
        return sum(map(len, self._by_incarnation.values()))

    def _check(self, tunnel: Tunnel) -> None:
        if self._is_closed.is_set():
            raise Draining("the router stops")
        if time.monotonic() - tunnel.heard_at > SILENCE_SECONDS:
            raise DeadlineExceeded(f"nothing was heard of the worker for {SILENCE_SECONDS:g} s")

    def _forget(self, tunnel: Tunnel) -> None:
        tunnels = self._by_incarnation[tunnel.worker.incarnation]
        tunnels.remove(tunnel)
        if not tunnels:
            del self._by_incarnation[tunnel.worker.incarnation]
        self._metrics.tunnels.set(self._number)


def _heard(hearing: "asyncio.Task[None]") -> None:
    """What it has raised is the worker's end of the stream, which is noticed or ended here."""
    if not hearing.cancelled():
        hearing.exception()
