"""A session that several equal requests are answered with."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from kakeya_router.store.connection import is_done
from kakeya_router.store.session_record import SessionId, SessionRecord, State
from kakeya_router.store.sessions.creation_store import CreationStore
from kakeya_shared.process.detached_tasks import DetachedTasks

_FIRST_POLL_SECONDS = 0.05
_LONGEST_POLL_SECONDS = 1.0


@dataclass(eq=False, slots=True)
class Sharing:
    """Waits for sessions that other calls open: one poll a session, however many wait for it here.

    The last one who leaves ends the poll, so that the session is not marked as shared for none. Called by `Sessions`.
    """

    _store: CreationStore
    _tasks: DetachedTasks
    _polls: dict[SessionId, asyncio.Task[SessionRecord | None]] = field(default_factory=dict, init=False)
    _num_waiting: Counter[SessionId] = field(default_factory=Counter, init=False)

    async def opened(self, record: SessionRecord) -> SessionRecord | None:
        """The record of the session once it is open; None when it never will be. Raises StoreUnavailable."""
        session_id = record.session_id
        if session_id not in self._polls:
            self._polls[session_id] = self._tasks.start(self._poll(record))
        poll = self._polls[session_id]
        self._num_waiting[session_id] += 1
        try:
            return await asyncio.shield(poll)
        finally:
            self._num_waiting[session_id] -= 1
            if not self._num_waiting[session_id]:
                del self._polls[session_id], self._num_waiting[session_id]
                poll.cancel()

    async def _poll(self, record: SessionRecord) -> SessionRecord | None:
        pause_seconds = _FIRST_POLL_SECONDS
        while True:
            answer = await self._store.share(record)
            if not is_done(answer.outcome):
                return None
            if answer.record.state is not State.OPENING:
                return answer.record
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _LONGEST_POLL_SECONDS)
