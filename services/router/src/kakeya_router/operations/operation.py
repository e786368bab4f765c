"""One running operation, as its router sees it; its transitions are methods here, and nobody else assigns to it."""

import asyncio
import secrets
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kakeya_router.contract.appends import Appended
from kakeya_router.operations.journal import Journal
from kakeya_router.store.session_record import Claim, Features, Incarnation, LaneState, SessionRecord
from kakeya_router.store.sessions.operation_store import LastTurn
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_router.workers.worker_client import RunningCall, WorkerClient
from kakeya_shared.errors.tree import KakeyaError
from kakeya_shared.process.detached_tasks import DetachedTasks, Outcome, unheard
from kakeya_shared.rpc import tracing

T = TypeVar("T")


@dataclass(eq=False)
class Elsewhere(Outcome):
    """The history does not end where the operation would begin, or with another one; nothing has changed."""

    record: SessionRecord


class Operation:
    """Made when a call comes in; it holds the session from the time that it has begun until it is over.

    Attributes:
        record: the session as it was when the operation began, and since then as its lane is known to be.
        kind: "append" or "generate", or another that changes nothing.
        features: that its worker has to name; more of them from its first token on, see `pins`.
        began: when the call came in, on the monotonic clock.
        tokens_per_minute: quota of the caller; 0 for none.
        op_id: names it to the client, in logs and traces.
        goes_on: it began at another router, or in another call.
        is_answering: a Generate that has come to its first token; a session that lives for one answer ends with it.
        closes: the session ends with it, however it ends.
        turn: the answer that it ends with; None: it has not come to its end.
        lane_freed: by the worker, with that.
        claim: proves to the store that it is this router's.
        call: the worker's calls, ended when the session is taken away.
        is_parked: the session has no lane.
        at_worker: set before the worker is called; from then on its lane may differ from the record.
        journal: set once it has begun.
        append_start: history length at which its append begins; None: it has none.
        over: the session is not its any more.
    """

    def __init__(
        self, record: SessionRecord, intent: Intent, tasks: DetachedTasks, *, tokens_per_minute: int = 0
    ) -> None:
        self.record = record
        self.began = time.monotonic()
        self.kind = intent.kind
        self.features = intent.features
        self.tokens_per_minute = tokens_per_minute
        self.claim = Claim(secrets.token_hex(8))
        self.goes_on = bool(intent.op_id)
        self.op_id = intent.op_id or self.claim
        self.is_answering = self.closes = False
        self.call = RunningCall()
        self.is_parked = False
        self.turn: LastTurn | None = None
        self.lane_freed = False
        self.at_worker = False
        self.append_start: int | None = None
        self.over = False
        self._progress_kept = self.began
        self.journal: Journal
        self._tasks = tasks
        self._work: asyncio.Task[Any] | None = None
        self._ending: asyncio.Task[KakeyaError | None] | None = None
        self._closing: asyncio.Task[int | None] | None = None

    # It begins, or takes over what another router has left.

    def answered(self, record: SessionRecord, journal: Journal, *, is_parked: bool) -> None:
        """The store has answered to its begin, with the session as it is."""
        self.record, self.journal, self.is_parked = record, journal, is_parked

    def pins(self, features: Features) -> None:
        """It has begun, or begins, where these are named, and goes on nowhere else."""
        self.features |= features

    def takes_over(self) -> None:
        """It ends the operation of a router that vanished; nobody comes for the rest of an answer, unless this does."""
        self.at_worker, self.is_answering = True, not self.goes_on

    def took_over(self) -> None:
        """That one is over, and this one begins anew."""
        self.at_worker = self.is_answering = self.over = False

    # Its lane.

    def calls_worker(self) -> None:
        self.at_worker = True

    def answers(self) -> None:
        self.at_worker = self.is_answering = True

    def can_be_gone_on_with(self) -> None:
        """Its client may come again for the rest of the answer."""
        self.is_answering = False

    @property
    def ends_session(self) -> bool:
        """Whether its lane need not outlast the answer; the answer's end may be lost on the way, though."""
        return (self.closes or self.record.ephemeral) and self.record.is_recoverable

    def has_answered(self, turn: LastTurn, *, lane_freed: bool) -> None:
        """Its answer is there as a whole."""
        self.turn, self.lane_freed = turn, lane_freed

    def closes_session(self) -> None:
        """Its client wants nothing of the session after it."""
        self.closes = True

    def committed(self, lane: LaneState) -> None:
        """What its worker says that the lane holds."""
        self.record = self.record.with_lane(lane)

    def lies_at(self, record: SessionRecord) -> None:
        """The session has another lane, or none, as the store says."""
        self.record = self.journal.record = record

    def has_lane(self, record: SessionRecord) -> None:
        """The session has a lane now that it did not have."""
        self.lies_at(record)
        self.is_parked = False

    def rewound(self, record: SessionRecord) -> None:
        """The store has taken the history back."""
        self.lies_at(record)
        self.journal.length, self.journal.digest = record.journal_length, None

    def looked_at(self, record: SessionRecord) -> None:
        """The session as it is now. Another operation may have begun since, which the worker must not take it for."""
        self.record = replace(record, operation_number=self.record.operation_number)
        self.journal.length = min(self.journal.length, record.journal_length)

    def keeps_progress(self, seconds: float) -> bool:
        """Whether what its worker does was not kept for so long; then it is from now on."""
        now = time.monotonic()
        if now - self._progress_kept <= seconds:
            return False
        self._progress_kept = now
        return True

    # Its append.

    async def append(self, token_ids: Sequence[int], start_tags: Sequence[str] = ()) -> None:
        """Adds tokens to the history; they come to the lane by `prefill`. Raises Taken or StoreUnavailable.

        Args:
            start_tags: of the place behind them, where its answer begins.
        """
        self.calls_worker()
        start = self.journal.length
        with tracing.part("journal", appended=len(token_ids)):
            await self.journal.write(token_ids, start_tags)
        self.append_start = start

    async def tag_start(self, tags: Sequence[str]) -> None:
        """Gives the place where its answer begins tags, where the append is there already; raises as `append`."""
        await self.journal.write((), tags)

    async def prefill(self, worker: WorkerClient, token_ids: Sequence[int], logprobs: int | None = None) -> Appended:
        """Brings the lane what is in the journal; raises HistoryFull, and what the worker raises."""
        answer = await worker.append(self.record, token_ids, self.call, logprobs)
        self.committed(answer.lane)
        return answer

    def retracted(self, length: int) -> None:
        """The history ends here again: what came after does not fit."""
        self.journal.length, self.journal.digest = length, None
        self.record = replace(self.record, operation_start=min(self.record.operation_start, length))

    # What is completed although its caller is gone, and its end.

    async def complete(self, work: Coroutine[Any, Any, T]) -> T:
        """Completes what works on the session's lane although the caller is cancelled; a part of it needs no task."""
        if self._work is not None and asyncio.current_task() is self._work:
            return await work
        self._work = task = self._tasks.start(work)
        return await asyncio.shield(task)

    async def end(self, ending: Coroutine[Any, Any, KakeyaError | None]) -> KakeyaError | None:
        """Writes through what the worker committed, although the caller is cancelled."""
        self._ending = self._tasks.start(ending)
        return await asyncio.shield(self._ending)

    async def ended(self) -> bool:
        """Waits for its end, if that has begun, and for its work otherwise; whether it is over."""
        await _done(self._ending)
        if not self.over:
            await _done(self._work)
        return self.over

    def close(self, closing: Coroutine[Any, Any, int | None]) -> None:
        """Closes the session, which lived for this answer."""
        self._closing = self._tasks.start(closing)
        unheard(self._closing)

    async def closed(self, timeout_seconds: float) -> None:
        """Waits a moment for a session that has ended with its answer to be closed, so that its lane is free."""
        if self._closing is not None:
            await asyncio.wait([self._closing], timeout=timeout_seconds)

    def is_over(self) -> None:
        """The session is not its any more."""
        self.over = True


class Running(set[Operation]):
    """Those of a router that hold a session. What ends their calls to workers, which may hang otherwise."""

    def see_workers(self, incarnations: frozenset[Incarnation]) -> None:
        """Told which workers are alive."""
        for operation in self:
            if operation.record.incarnation and operation.record.incarnation not in incarnations:
                operation.call.lose_worker()

    def hear_silent(self, addresses: frozenset[str]) -> None:
        """Told where workers are that do not answer."""
        for operation in self:
            if operation.record.address in addresses:
                operation.call.lose_worker()


async def _done(task: asyncio.Task[Any] | None) -> None:
    if task is not None:
        unheard(task)
        await asyncio.wait([task])
