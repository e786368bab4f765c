"""One call that looks for a lane."""

import asyncio
import secrets
from dataclasses import dataclass, field

from kakeya_router.lanes.wanted import Wanted
from kakeya_router.store.session_record import Incarnation, PoolName, WorkerId
from kakeya_router.store.sessions.queue_store import Place
from kakeya_router.store.sessions.session_changes import INTERRUPTED
from kakeya_shared.errors.tree import InvalidField, KakeyaError

# What keeps a worker from opening a lane is rarely over at once, and each try takes a lane from the ledger.
_PAUSE_SECONDS = 1.0
_FULL_SECONDS = 0.01  # to begin with: to close a lane takes a worker milliseconds


@dataclass(eq=False, slots=True)
class Waiter:
    """One search for a lane, and its place in the queue of each pool that serves what it wants.

    It is the notebook of that search: `Search` writes down what workers have said, `AdmissionQueue` where it stands,
    and wakes it.

    Attributes:
        since: the time on the event loop's clock at which it began.
        refused: what workers have said that cannot hold the session, by incarnation.
        paused: workers that are tried last, with the time from which on they are tried at all.
        said: that the last worker to have a lane for it could not read its snapshots.
        tickets: its place in each queue that it stands in, or will return to; empty: at the end, as it made way.
        queued_in: pools in whose queue it stands, as far as this router knows.
        turns: workers without room at which it is the first in the queue, by pool; a pool that has not answered since
            they were last used is not in it.
        answered: its request id was answered elsewhere.
        displaced: pools whose queue it is not in any more.
        stranded: at the last tick its fork's source was not on the worker that it waits for, or that took no sessions.
        awake: there is something to do that it has not come to yet.
        entering: enters queues; what it has begun is completed before the waiter leaves.
        making_room: frees an idle session's lane for it.
    """

    wanted: Wanted
    reserved_bytes: int
    since: float = field(default_factory=lambda: asyncio.get_running_loop().time(), init=False)
    waiter_id: str = field(default_factory=lambda: secrets.token_hex(8), init=False)
    refused: dict[Incarnation, InvalidField] = field(default_factory=dict, init=False)
    paused: dict[Incarnation, float] = field(default_factory=dict, init=False)
    said: KakeyaError | None = field(default=None, init=False)
    tickets: dict[PoolName, str] = field(default_factory=dict, init=False)
    queued_in: set[PoolName] = field(default_factory=set, init=False)
    turns: dict[PoolName, set[WorkerId]] = field(default_factory=dict, init=False)
    answered: bool = field(default=False, init=False)
    displaced: set[PoolName] = field(default_factory=set, init=False)
    stranded: bool = field(default=False, init=False)
    awake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    entering: asyncio.Task[None] | None = field(default=None, init=False)
    making_room: asyncio.Task[None] | None = field(default=None, init=False)
    _full_seconds: float = field(default=_FULL_SECONDS, init=False)
    _error: KakeyaError | None = field(default=None, init=False)

    def place(self, pool: PoolName) -> Place:
        wanted = self.wanted
        return Place(
            self.waiter_id,
            INTERRUPTED if wanted.is_interrupted else wanted.caller.tenant,
            wanted.caller.key_id,
            wanted.model,
            wanted.fingerprint,
            list(self.refused),
            self.reserved_bytes,
            self.tickets.get(pool, ""),
            wanted.incarnation,
            wanted.snapshot_store,
            wanted.model_digest,
            sorted(wanted.features),
        )

    @property
    def id_in_queue(self) -> str:
        """Of one that does not stand in a queue only whether it is an interrupted operation."""
        if self.tickets:
            return self.waiter_id
        return INTERRUPTED if self.wanted.is_interrupted else ""

    def has_left(self, pool: PoolName) -> None:
        self.queued_in.discard(pool)
        self.turns.pop(pool, None)

    @property
    def knows_its_turns(self) -> bool:
        """Whether it is the first somewhere, and all its pools have answered.

        Room made for it at the first worker to answer would not be that of the session idle for longest.
        """
        return any(self.turns.values()) and self.queued_in <= self.turns.keys()

    def room_is_made(self) -> None:
        """What a worker said before that is of no account."""
        self.paused = dict.fromkeys(self.paused, 0.0)

    def pause(self, incarnation: Incarnation, *, is_full: bool) -> None:
        """Does not try it for a while, and then again.

        Args:
            is_full: it had a lane for this one by the ledger, and has none: it is just being asked to close one.
        """
        loop = asyncio.get_running_loop()
        seconds = _PAUSE_SECONDS
        if is_full:
            seconds, self._full_seconds = self._full_seconds, min(2 * self._full_seconds, _PAUSE_SECONDS)
        self.paused[incarnation] = loop.time() + seconds
        loop.call_later(seconds, self.wake)

    def may_try(self, incarnation: Incarnation, now: float) -> bool:
        return incarnation not in self.refused and self.paused.get(incarnation, 0.0) <= now

    def wake(self, error: KakeyaError | None = None) -> None:
        """`error` ends the wait."""
        self._error = self._error or error
        self.awake.set()

    async def woken(self) -> None:
        """Waits until there is something to do; raises the error that ends the wait."""
        await self.awake.wait()
        self.awake.clear()
        if self._error is not None:
            raise self._error
