"""A session that several equal requests are answered with."""

import asyncio

from kakeya_router.store.outcomes import ShareSession
from kakeya_router.store.session_record import SessionRecord, State
from kakeya_router.store.sessions.creation_store import CreationStore
from kakeya_shared.process.detached_tasks import DetachedTasks

_FIRST_POLL_SECONDS = 0.05
_LONGEST_POLL_SECONDS = 1.0


class Sharing:
    """Waits for sessions that other calls open: one poll a session, however many wait for it here."""

    def __init__(self, store: CreationStore, tasks: DetachedTasks) -> None:
        self._store = store
        self._tasks = tasks
        self._polls: dict[str, asyncio.Task[SessionRecord | None]] = {}
        self._num_waiting: dict[str, int] = {}

    async def opened(self, record: SessionRecord) -> SessionRecord | None:
        """The record of the session once it is open; None when it never will be. Raises StoreUnavailable."""
        session_id = record.session_id
        if session_id not in self._polls:
            self._polls[session_id] = self._tasks.start(self._poll(record))
            self._num_waiting[session_id] = 0
        poll = self._polls[session_id]
        self._num_waiting[session_id] += 1
        try:
            return await asyncio.shield(poll)
        finally:
            self._leave(session_id, poll)

    def _leave(self, session_id: str, poll: "asyncio.Task[SessionRecord | None]") -> None:
        """The last one ends the poll: nobody shares a session that nobody waits for."""
        self._num_waiting[session_id] -= 1
        if not self._num_waiting[session_id]:
            del self._polls[session_id], self._num_waiting[session_id]
            poll.cancel()

    async def _poll(self, record: SessionRecord) -> SessionRecord | None:
        pause_seconds = _FIRST_POLL_SECONDS
        while True:
            answer = await self._store.share(record)
            if answer.outcome is ShareSession.MISSING:
                return None
            if answer.record.state is not State.OPENING:
                return answer.record
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _LONGEST_POLL_SECONDS)
