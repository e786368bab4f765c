"""Lanes of idle sessions, for the sessions that want one: of disposable ones, and as `--admission` says of others."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Literal, assert_never

import structlog

from kakeya_router.lanes.closing import Closing
from kakeya_router.lanes.parking import Parking
from kakeya_router.store.outcomes import ParkSession
from kakeya_router.store.session_record import PoolName, SessionId, SessionRecord, WorkerId
from kakeya_router.store.sessions.session_changes import Cause
from kakeya_router.store.sessions.session_lists import SessionLists, TenantUsage
from kakeya_shared.process.detached_tasks import DetachedTasks

_BATCH = 128

_log = structlog.get_logger()

Turns = Mapping[PoolName, Collection[WorkerId]]
"""The workers on which a lane would help, by pool."""


class GivesWay(StrEnum):
    """What becomes of the session that has been idle for longest, and is not disposable, where its lane is wanted."""

    NEVER = "it keeps its lane"
    IS_CLOSED = "it is closed"
    IS_PARKED = "it is parked, by its journal alone if need be"
    IS_SAVED = "it is parked where its worker has a snapshot store, else it keeps its lane"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A session that may go.

    Attributes:
        rank: the lower goes first; see `SessionLists.spare`, and else the end of its last operation in milliseconds.
        is_spare: it is disposable, and an answer of it has ended.
        is_fair: its owner has not less afterwards than who wants the lane.
    """

    record: SessionRecord
    rank: int
    _: KW_ONLY
    is_spare: bool
    is_fair: bool


@dataclass(eq=False, slots=True)
class IdleLanes:
    """Frees the lanes of idle sessions: the one that has been idle for longest goes first.

    Before all others go disposable ones of one turn whose prefill costs less than parking: they are closed. The others
    are parked, or closed where that is not possible or not wanted. Called by `AdmissionQueue` for the first in the
    queue, and by `Search` for who comes, or has reached a quota.

    Attributes:
        idle_seconds: how long a session must have been idle that is not disposable.
        others: what becomes of such a one.
        when_parked: is called when one was parked, with its pool, which keeps more then.
    """

    _store: SessionLists
    _closing: Closing
    _parking: Parking
    _tasks: DetachedTasks
    _: KW_ONLY
    idle_seconds: float
    others: GivesWay
    when_parked: Callable[[PoolName], object] = lambda pool: None
    _going: set[SessionId] = field(default_factory=set, init=False)

    async def make_room(self, tenant: str, turns: Turns, spared: SessionId, *, only_disposable: bool = False) -> bool:
        """Frees the lane of the session that may go first; whether there was one.

        Its owner is the tenant itself, or has not less afterwards; else it is disposable, and no such one is there.

        Args:
            tenant: wants a lane.
            spared: id of a session that must stay.
            only_disposable: nothing is done where another session is to go first.
        """
        unfair: list[Candidate] = []
        spare = [self._spare_of_pool(pool, ids, tenant, spared) for pool, ids in turns.items()]
        others = [] if self.others is GivesWay.NEVER else list(turns.items())
        idle = [self._idle_of_pool(pool, ids, tenant, spared) for pool, ids in others]
        async with aclosing(_in_order(spare, idle)) as found:
            async for each in found:
                if each.is_fair:
                    if only_disposable and not each.is_spare:
                        return False
                    if await self._tasks.complete(self._frees(each, tenant)):
                        return True
                elif each.is_spare:
                    unfair.append(each)
        for each in unfair:
            if await self._tasks.complete(self._frees(each, tenant)):
                return True
        return False

    async def give_up_own(
        self, tenant: str, pools: Collection[PoolName], spared: SessionId, key_id: str | None = None
    ) -> bool:
        """Frees the lane of the tenant's own session that makes room first, for another of it; whether there was one.

        Args:
            spared: id of a session that must stay.
            key_id: only of this key; None: of any.
        """
        for pool in sorted(pools):
            for start, limit in self._batches():
                found = await self._store.spare(pool, start, limit, tenant=tenant)
                for rank, record in found:
                    is_meant = record.session_id != spared and key_id in (None, record.key_id)
                    own = Candidate(record, rank, is_spare=True, is_fair=True)
                    if is_meant and await self._tasks.complete(self._frees(own, tenant)):
                        return True
                if not found:
                    break
        return False

    async def _frees(self, candidate: Candidate, tenant: str) -> bool:
        session_id = candidate.record.session_id
        if session_id in self._going:
            return False
        self._going.add(session_id)
        try:
            return await self._goes(candidate, tenant)
        finally:
            self._going.discard(session_id)

    async def _goes(self, candidate: Candidate, tenant: str) -> bool:
        record, idle_ms = candidate.record, 0 if candidate.is_spare else self._idle_ms
        if await self._is_to_be_parked(candidate):
            answer = await self._parking.park(record, "room", idle_ms=idle_ms, wanted_by=tenant)
            match answer.outcome:
                case ParkSession.PARKED:
                    self.when_parked(record.pool)
                    return _freed("parked", record, tenant)
                case ParkSession.UNRECOVERABLE:
                    pass
                case (
                    ParkSession.NO_LANE
                    | ParkSession.LEFT
                    | ParkSession.KEPT
                    | ParkSession.CHANGED
                    | ParkSession.FAILED
                    | ParkSession.MISSING
                    | ParkSession.LOST
                    | ParkSession.BUSY
                ):
                    return False
                case never:
                    assert_never(never)
        if not (candidate.is_spare or self.others is GivesWay.IS_CLOSED):
            return False
        if await self._closing.close(record, Cause.IDLE, idle_ms=idle_ms, wanted_by=tenant) is None:
            return False
        return _freed("closed", record, tenant)

    async def _is_to_be_parked(self, candidate: Candidate) -> bool:
        if candidate.is_spare:
            return candidate.rank >= 0 and await self._parking.saves(candidate.record)
        if self.others is GivesWay.IS_SAVED:
            return await self._parking.saves(candidate.record)
        return self.others is GivesWay.IS_PARKED

    @property
    def _idle_ms(self) -> int:
        return round(self.idle_seconds * 1000)

    async def _spare_of_pool(
        self, pool: PoolName, worker_ids: Collection[WorkerId], tenant: str, spared: SessionId
    ) -> AsyncIterator[Candidate]:
        for start, limit in self._batches():
            found = await self._store.spare(pool, start, limit)
            if not found:
                return
            usage = await self._usage(pool, tenant, [record for _, record in found])
            for rank, record in found:
                if self._may_go(record, worker_ids, spared):
                    is_fair = _is_fair(record, tenant, usage, num_more=1)
                    yield Candidate(record, rank, is_spare=True, is_fair=is_fair)

    async def _idle_of_pool(
        self, pool: PoolName, worker_ids: Collection[WorkerId], tenant: str, spared: SessionId
    ) -> AsyncIterator[Candidate]:
        for start, limit in self._batches():
            records = await self._store.idle(pool, self._idle_ms, start, limit)
            if not records:
                return
            usage = await self._usage(pool, tenant, records)
            for record in records:
                if self._may_go(record, worker_ids, spared):
                    # With one more, the two would take it from each other in turn.
                    is_fair = _is_fair(record, tenant, usage, num_more=2)
                    yield Candidate(record, record.idle_since_ms, is_spare=False, is_fair=is_fair)

    def _batches(self) -> Iterator[tuple[int, int]]:
        """Where each begins, and how long it is. Mostly the first goes that does not go already, and each record that
        is read costs as much as all else.
        """
        start, limit = 0, 1 + len(self._going)
        while True:
            yield start, limit
            start, limit = start + limit, _BATCH

    def _may_go(self, record: SessionRecord, worker_ids: Collection[WorkerId], spared: SessionId) -> bool:
        """Unless it goes already, for another who came in the same moment."""
        return record.session_id not in (spared, *self._going) and record.worker_id in worker_ids

    async def _usage(self, pool: PoolName, tenant: str, records: Sequence[SessionRecord]) -> Mapping[str, TenantUsage]:
        """Nothing where all are the tenant's own."""
        return await self._store.usage(pool) if any(record.tenant != tenant for record in records) else {}


async def _in_order(
    spare: Sequence[AsyncIterator[Candidate]], idle: Sequence[AsyncIterator[Candidate]]
) -> AsyncGenerator[Candidate, None]:
    """Those of all sources, in the order in which they go; nobody looks for those that are only idle while there are
    such that go before all.
    """
    firsts = await _firsts(spare)
    is_complete = False
    while firsts or not is_complete:
        if not is_complete and (not firsts or min(first.rank for first, _ in firsts) >= 0):
            firsts, is_complete = firsts + await _firsts(idle), True
            continue
        oldest, source = min(firsts, key=lambda each: each[0].rank)
        yield oldest
        firsts.remove((oldest, source))
        if (following := await anext(source, None)) is not None:
            firsts.append((following, source))


async def _firsts(sources: Sequence[AsyncIterator[Candidate]]) -> list[tuple[Candidate, AsyncIterator[Candidate]]]:
    return [(first, source) for source in sources if (first := await anext(source, None)) is not None]


def _freed(what: str, record: SessionRecord, tenant: str) -> Literal[True]:
    _log.info(f"idle session {what} for its lane", session_id=record.session_id, wanted_by=tenant)
    return True


def _is_fair(record: SessionRecord, tenant: str, usage: Mapping[str, TenantUsage], *, num_more: int) -> bool:
    """Whether it is the tenant's own, or of one that holds so many lanes more at least."""
    if record.tenant == tenant:
        return True
    owner, taker = (usage.get(each, TenantUsage()).reserved_bytes for each in (record.tenant, tenant))
    return owner >= taker + num_more * record.reserved_bytes
