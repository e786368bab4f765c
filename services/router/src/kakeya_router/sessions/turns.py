"""Turns: where each is, in a session that is there, in a fork of it, or in a new one."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import cast

from kakeya_router.access import callers
from kakeya_router.contract.appends import Appended
from kakeya_router.contract.creates import CreateRequest
from kakeya_router.contract.turns import Held, Part, Place, Searched, TurnEvent, TurnRequest, part
from kakeya_router.contract.validation import check_history_length
from kakeya_router.operations.generate import CLOSE_SECONDS, SecondsLeft
from kakeya_router.operations.operation import Elsewhere
from kakeya_router.operations.turn import Turning
from kakeya_router.sessions.sessions import Made, Sessions
from kakeya_router.sessions.tagging import Tagging
from kakeya_router.store.session_record import SessionRecord
from kakeya_router.store.sessions.operation_store import OperationStore
from kakeya_shared.errors.tree import KakeyaError, OperationRunning, SessionNotFound, StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks


@dataclass(eq=False, slots=True)
class Turns:
    """Finds or makes the session of a turn, and has it held there; called by `RuntimeService`.

    At a place with a boundary the session itself is taken in one step, if it is idle there, or not at all: then a fork
    of its history is made. So of two turns at one place one takes the session, and neither stands behind the other.
    In a head no turn goes on at a place.
    With an expected history length it is taken in the same way, or the turn is refused.

    A session that a turn has made is closed again where it fails, or its client leaves, before it has appended: nobody
    can go on with it, and the same turn makes another, unless a repetition of the turn has found it by its request_id.
    """

    _store: OperationStore
    _sessions: Sessions
    _turning: Turning
    _tagging: Tagging
    _tasks: DetachedTasks

    async def turn(self, request: TurnRequest, seconds_left: SecondsLeft) -> AsyncGenerator[TurnEvent, None]:
        """Events as `Turning.turn` has them, behind what its search comes to; errors of the tree name their part.

        Raises:
            HistoryLengthMismatch: the session has another length than the caller expects; nothing has changed.
            as `Turning.turn`, as `Sessions.opened` where a session is made, as `Tagging.find` where one is looked for
        """
        found, searched = None, None
        if request.search is not None:
            with part("session"):
                found = await self._tagging.find(request.search.find)
            searched, gone_on = Searched(found), request.after(found)
            if gone_on is None:
                yield searched
                return
            request = gone_on
        async with aclosing(self._there(request, found.record if found else None, seconds_left)) as events:
            async for event in events:
                yield replace(event, searched=searched) if isinstance(event, Held) else event

    async def _there(
        self, request: TurnRequest, known: SessionRecord | None, seconds_left: SecondsLeft
    ) -> AsyncGenerator[TurnEvent, None]:
        """It is said where.

        Args:
            known: the session, as it has just been found.
        """
        at: Part = "session"
        is_new = False
        try:
            made, boundary = await self._begin(request, known)
            while True:
                is_new = made.is_new
                try:
                    turn = self._turning.turn(made.record, request, boundary, seconds_left)
                    async with aclosing(turn) as events:
                        async for event in events:
                            if isinstance(event, Held):
                                at = "append"
                            elif isinstance(event, Appended):
                                at, is_new = "generate", False
                            yield event
                    return
                except (Elsewhere, OperationRunning) as error:
                    if boundary is None or at != "session":
                        raise
                    _check_forks(request, boundary, error)
                    # By history, which the source has whatever runs on it.
                    made, boundary = await self._forked(made.record, request, of_history=True), None
                except SessionNotFound:
                    if at != "session" or not _is_found(made, request):
                        raise
                    made, boundary = await self._begin(request)  # the first attempt has closed it meanwhile
        except BaseException as error:
            if isinstance(error, KakeyaError):
                error.metadata.setdefault("part", at)
            if is_new:
                await self._abandon(made.record, error)
            raise

    async def _begin(self, request: TurnRequest, known: SessionRecord | None = None) -> tuple[Made, int | None]:
        """The session to try, and where it has to end; None: wherever it does."""
        if isinstance(request.where, CreateRequest):
            return await self._sessions.opened(request.where, request.generate.features, request.check), None
        where = cast(Place, request.where)
        session_id = callers.check_issued(where.session_id)
        fork = await self._sessions.forked(where.fork) if where.request_id else None
        if fork is not None:
            return Made(fork, is_new=False), None
        record = callers.callers_own(known or await self._store.known(session_id))
        if record.head and where.boundary is not None:
            return await self._forked(record, request, of_history=False), None
        return Made(record, is_new=False), where.length

    async def _forked(self, source: SessionRecord, request: TurnRequest, *, of_history: bool) -> Made:
        fork = cast(Place, request.where).fork_like(source)
        return await self._sessions.opened(fork, request.generate.features, request.check, of_history=of_history)

    async def _abandon(self, record: SessionRecord, error: BaseException) -> None:
        """Nobody waits for it whose client is gone, or where Redis is away."""
        abandoned = self._tasks.start(self._sessions.abandon(record))
        if isinstance(error, KakeyaError) and not isinstance(error, StoreUnavailable):
            await asyncio.wait([abandoned], timeout=CLOSE_SECONDS)


def _check_forks(request: TurnRequest, length: int, error: Elsewhere | OperationRunning) -> None:
    """Raises OperationRunning, HistoryLengthMismatch: it is to be in the session itself, which is not idle there."""
    if cast(Place, request.where).boundary is not None:
        return
    if isinstance(error, Elsewhere):
        check_history_length(length, error.record.journal_length)
    raise error


def _is_found(made: Made, request: TurnRequest) -> bool:
    """Whether an earlier attempt of the turn has made the session."""
    is_named = isinstance(request.where, Place) and made.record.session_id == request.where.session_id
    return not made.is_new and not is_named
