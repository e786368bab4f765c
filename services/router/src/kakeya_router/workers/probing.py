"""Workers that stand still are given up long before their lease lapses, where this router waits for them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import grpc
import structlog

from kakeya_shared.process.bulletin import cancelled
from kakeya_shared.process.endured_loop import endured_loop

# A small call each second, of those workers alone that run something of this router.
_INTERVAL_SECONDS = 1.0
# Of the silence that is too long, so that no single answer decides.
_PART = 1 / 3
# Of one probe: then another one is sent, over a new connection where that has broken.
PROBE_SECONDS = 5.0
_NO_ANSWER = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)

_log = structlog.get_logger()


@dataclass(eq=False)
class Answers:
    """Whether one worker answers.

    Args:
        ask: a small call; raises AioRpcError.

    Attributes:
        is_silent: it has not answered for too long.
    """

    _ask: Callable[[], Awaitable[object]]
    is_silent: bool = field(default=False, init=False)
    _num_missed: int = field(default=0, init=False)  # passes since its last answer
    _asking: asyncio.Task[None] | None = field(default=None, init=False)

    def miss(self, most: float) -> None:
        """Another pass; it is silent where so many have gone by since it was asked first, without an answer."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._hear())
        self.is_silent = self._num_missed >= most
        self._num_missed += 1

    def forget(self) -> None:
        """Nobody waits for it: its silence is counted anew."""
        self._num_missed = 0

    async def aclose(self) -> None:
        if self._asking is not None:
            await cancelled(self._asking)

    async def _hear(self) -> None:
        try:
            await self._ask()
        except grpc.aio.AioRpcError as error:
            if error.code() in _NO_ANSWER:
                return
        self._num_missed, self.is_silent = 0, False


@dataclass(eq=False)
class Probing:
    """Probes workers that run calls of this router. What is asked of one that does not answer is ended, and it is asked
    nothing more until it answers again. Its sessions go on elsewhere, under other epochs.

    Time is counted in passes of this loop: a router that was frozen itself takes nobody for silent. A worker that is
    reached through tunnels is not probed, for it is waited for as long as its lease runs. Started by `Router`.

    Args:
        probe: see `WorkerClients.probe`.

    Attributes:
        silence_seconds: without an answer for so long it is given up.
        on_silent: told at each pass the addresses of those that are; set once what has to hear it is there.
    """

    _probe: Callable[[float], frozenset[str]]
    silence_seconds: float
    on_silent: Callable[[frozenset[str]], None] = lambda addresses: None
    _silent: frozenset[str] = field(default=frozenset(), init=False)

    async def run(self) -> None:
        """Probes until it is cancelled."""
        await endured_loop("probing workers", self._pass, interval_seconds=self._interval_seconds, put_off_by=())

    @property
    def _interval_seconds(self) -> float:
        return min(_INTERVAL_SECONDS, _PART * self.silence_seconds)

    async def _pass(self) -> None:
        silent = self._probe(self.silence_seconds / self._interval_seconds)
        for address in silent - self._silent:
            _log.warning("a worker does not answer and is given up", address=address)
        self._silent = silent
        if silent:
            self.on_silent(silent)
