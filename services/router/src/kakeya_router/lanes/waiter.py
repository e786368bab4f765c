"""One call that looks for a lane."""

import asyncio
import secrets

from kakeya_router.lanes.wanted import Wanted
from kakeya_router.store.sessions.queue_store import Place
from kakeya_router.store.sessions.session_changes import INTERRUPTED
from kakeya_shared.errors.tree import InvalidField, KakeyaError


class Waiter:
    """One search for a lane, and its place in the queue of each pool that serves what it wants.

    Attributes:
        is_interrupted: see `Seeker`.
        refused: what workers have said that cannot hold the session, by incarnation.
        paused: workers that could not take it, with the time from which on they are tried again.
        shunned: incarnations that are tried last.
        tickets: its place in each line that it stands in, or will return to.
        in_line: pools in whose line it stands, as far as this router knows.
        turns: workers without room at which it is first in the line, by pool.
        answered: its request id was answered elsewhere.
        displaced: pools whose line it is not in any more.
        evicted: those of them in which it made way for others.
        stranded: at the last tick its fork's source was not on the worker that it waits for, or that took no sessions.
        entering: lines up; what it has begun is completed before the waiter leaves.
        making_room: frees an idle session's lane for it.
    """

    def __init__(self, wanted: Wanted, reserved_bytes: int, *, is_interrupted: bool = False) -> None:
        self.waiter_id = secrets.token_hex(8)
        self.wanted = wanted
        self.reserved_bytes = reserved_bytes
        self.is_interrupted = is_interrupted
        self.refused: dict[str, InvalidField] = {}
        self.paused: dict[str, float] = {}
        self.shunned: set[str] = set()
        self.tickets: dict[str, str] = {}
        self.in_line: set[str] = set()
        self.turns: dict[str, set[str]] = {}
        self.answered = False
        self.displaced: set[str] = set()
        self.evicted: set[str] = set()
        self.stranded = False
        self.entering: asyncio.Task[None] | None = None
        self.making_room: asyncio.Task[None] | None = None
        self._error: KakeyaError | None = None
        self._awake = asyncio.Event()

    def place(self, pool: str) -> Place:
        caller = self.wanted.caller
        return Place(
            self.waiter_id,
            INTERRUPTED if self.is_interrupted else caller.tenant,
            caller.key_id,
            self.wanted.model,
            self.wanted.fingerprint,
            list(self.refused),
            self.reserved_bytes,
            self.tickets.get(pool, ""),
            self.wanted.incarnation,
            self.wanted.snapshot_store,
            self.wanted.model_digest,
        )

    @property
    def newcomer_id(self) -> str:
        """In place of its id, as long as it does not stand in the queue."""
        return INTERRUPTED if self.is_interrupted else ""

    def may_try(self, incarnation: str, now: float) -> bool:
        return incarnation not in self.refused and self.paused.get(incarnation, 0.0) <= now

    def shun(self, incarnation: str, until: float) -> None:
        """A worker has not taken it: not worth another try at once, and then after all others."""
        self.paused[incarnation] = until
        self.shunned.add(incarnation)

    @property
    def source_id(self) -> str:
        """The session that it branches off from; empty: none."""
        fork_from = self.wanted.request.fork_from
        return "" if fork_from is None else fork_from.session_id

    @property
    def is_awake(self) -> bool:
        """There is something to do that it has not come to yet."""
        return self._awake.is_set()

    @property
    def is_making_room(self) -> bool:
        return self.making_room is not None and not self.making_room.done()

    def wake(self, error: KakeyaError | None = None) -> None:
        """`error` ends the wait."""
        self._error = self._error or error
        self._awake.set()

    async def woken(self) -> None:
        """Waits until there is something to do; raises the error that ends the wait."""
        await self._awake.wait()
        self._awake.clear()
        if self._error is not None:
            raise self._error
