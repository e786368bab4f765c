"""The tokens that operations add to histories, on their way into Redis: of all answers in one pipeline, and apart."""

import asyncio
import copy
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass, field

import structlog

from kakeya_router.metrics import RouterMetrics
from kakeya_router.store.connection import is_done
from kakeya_router.store.session_record import Claim, PoolName, SessionRecord
from kakeya_router.store.sessions.operation_store import JournalEnd, JournalPart, OperationStore
from kakeya_router.store.sessions.session_store import Taken
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_shared.process.detached_tasks import DetachedTasks

_log = structlog.get_logger()

# As often as a client's tokens are acknowledged to the worker; a write for each would cost Redis a sync of its disk.
_GROUP_TOKENS = 16
_GROUP_SECONDS = 0.05


class Journal:
    """Of one operation. An attempt whose answer was lost may be repeated: Redis knows what it has.

    Args:
        groups: by which generated tokens are written with those of others.
        record: of the session; replaced when it gets another lane.
        claim: the operation's.
        max_tokens: the oldest beyond so many leave the journal.
        on_written: told the new length after each group.

    Attributes:
        length: history length up to which Redis has everything, as far as is known here.
        digest: of the history there, once it has written; None: not known.
        pending: generated tokens after it, all of which the client may have seen.
        waits_since: for the first of them that is not being written, on the monotonic clock.
    """

    def __init__(
        self,
        store: OperationStore,
        groups: "JournalGroups",
        record: SessionRecord,
        claim: Claim,
        max_tokens: int,
        on_written: Callable[[int], None],
    ) -> None:
        self.record = record
        self.length = record.journal_length
        self.digest: int | None = None
        self.pending: list[int] = []
        self.waits_since = 0.0
        self._store = store
        self._groups = groups
        self._claim = claim
        self._max_tokens = max_tokens
        self._on_written = on_written
        self._is_writing = False
        self._part: JournalPart | None = None  # of `pending`, that is being written
        self._error: Exception | None = None

    async def write(self, token_ids: Sequence[int], start_tags: Sequence[str] = ()) -> None:
        """Adds tokens to the history; raises Taken or StoreUnavailable.

        Args:
            start_tags: of the place behind them, if the operation's answer begins there.
        """
        end = await self._store.extend_journal(
            self.record, self._claim, self.length, token_ids, self._max_tokens, start_tags
        )
        if not is_done(end.outcome):
            raise Taken
        self.length += len(token_ids)
        self.digest = int(end.digest, 16) if end.digest and end.length == self.length else None

    def add(self, token_id: int) -> None:
        """Takes a generated token, to be written with others.

        Raises:
            Taken, StoreUnavailable: those before cannot be written, and no more is to be shown to the client.
        """
        if self._error is not None:
            raise self._error
        self.pending.append(token_id)
        num_unsent = self._num_unsent
        if num_unsent == 1:
            self.waits_since = time.monotonic()
        if num_unsent == 1 or num_unsent == _GROUP_TOKENS:
            self._ask_to_write()

    async def flush(self) -> None:
        """Writes what is pending, until nothing is; raises as `write`."""
        while group := tuple(self.pending):
            await self.write(group)
            del self.pending[: len(group)]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """What is added is written in the background while inside; what is pending on the way out stays so."""
        self._error, self._is_writing = None, True
        if self.pending:
            self.waits_since = time.monotonic()
            self._ask_to_write()
        try:
            yield
        finally:
            # The answer to what is being written now is not heard: it will be written again.
            self._is_writing, self._part = False, None
            self._groups.leave(self.record.pool, self)

    # What the groups ask for.

    @property
    def is_full(self) -> bool:
        return self._num_unsent >= _GROUP_TOKENS

    def part(self) -> JournalPart:
        self._part = JournalPart(
            self.record, self._claim, self.length, tuple(self.pending), self._max_tokens, self.waits_since
        )
        return self._part

    def hears(self, part: JournalPart, answer: JournalEnd | Exception) -> None:
        if part is not self._part:
            return
        self._part = None
        try:
            if isinstance(answer, Exception):
                raise answer
            if not is_done(answer.outcome):
                raise Taken
            self.length += len(part.token_ids)
            self.digest = int(answer.digest, 16) if answer.digest and answer.length == self.length else None
            del self.pending[: len(part.token_ids)]
            self._on_written(self.length)
        except Exception as error:
            if not isinstance(error, Taken | StoreUnavailable):
                _log.exception("the journal cannot be written", session_id=self.record.session_id)
            self._error = error
            self._groups.leave(self.record.pool, self)
        else:
            if self.pending:  # what came meanwhile is of the next group
                self._ask_to_write()

    @property
    def _num_unsent(self) -> int:
        return len(self.pending) - (0 if self._part is None else len(self._part.token_ids))

    def _ask_to_write(self) -> None:
        if self._is_writing:
            self._groups.add(self.record.pool, self)


@dataclass(eq=False, slots=True)
class _Waiting:
    """Of a pool.

    Attributes:
        journals: in their order.
        timer: until all of them are due; None where they are, or none waits.
        is_due: their time came while others were written.
        is_writing: one round trip at a time.
    """

    journals: dict[Journal, None] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None
    is_due: bool = False
    is_writing: bool = False

    def take(self) -> list[Journal]:
        """All of them where they are due, else those that have a group."""
        taken = [journal for journal in self.journals if self.is_due or journal.is_full]
        for journal in taken:
            del self.journals[journal]
        self.is_due = False
        return taken

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    @property
    def has_any(self) -> bool:
        return self.is_due or any(journal.is_full for journal in self.journals)


@dataclass(eq=False)
class JournalGroups:
    """Writes what journals have 50 ms after the first token, and a group of 16 at once; one round trip at a time for
    all of a pool, whose keys are on one server. Each journal has an answer of its own.

    Between two writes there is a timer and no task: most answers of a few tokens end before their first group.
    """

    _store: OperationStore
    _tasks: DetachedTasks
    _metrics: RouterMetrics
    _pools: defaultdict[PoolName, _Waiting] = field(default_factory=lambda: defaultdict(_Waiting), init=False)

    def add(self, pool: PoolName, journal: Journal) -> None:
        """It has tokens that are to be written, or has a group now; until it is asked for them."""
        waiting = self._pools[pool]
        waiting.journals[journal] = None
        self._look(pool, waiting, has_any=journal.is_full)

    def leave(self, pool: PoolName, journal: Journal) -> None:
        """It is not asked any more."""
        if (waiting := self._pools.get(pool)) is not None:
            waiting.journals.pop(journal, None)
            self._look(pool, waiting, has_any=False)

    def _look(self, pool: PoolName, waiting: _Waiting, *, has_any: bool) -> None:
        if waiting.is_writing:
            return  # it looks when it has written
        if has_any:
            waiting.is_writing = True
            self._tasks.start(self._write_some(pool, waiting))
        elif not waiting.journals:
            waiting.stop()
            del self._pools[pool]
        elif waiting.timer is None:
            clock = asyncio.get_running_loop()
            waiting.timer = clock.call_later(_GROUP_SECONDS, self._due, pool, waiting, context=Context())

    def _due(self, pool: PoolName, waiting: _Waiting) -> None:
        waiting.timer, waiting.is_due = None, bool(waiting.journals)
        self._look(pool, waiting, has_any=waiting.is_due)

    async def _write_some(self, pool: PoolName, waiting: _Waiting) -> None:
        try:
            if taken := waiting.take():
                await self._write(taken)
        finally:
            waiting.is_writing = False
            self._look(pool, waiting, has_any=waiting.has_any)

    async def _write(self, journals: Sequence[Journal]) -> None:
        parts = [journal.part() for journal in journals]
        try:
            answers: Sequence[JournalEnd | Exception] = await self._store.extend_journals(parts)
        except Exception as error:
            answers = [copy.copy(error) for _ in parts]  # each is raised in a task of its own
        now = time.monotonic()
        for journal, part, answer in zip(journals, parts, answers, strict=True):
            if not isinstance(answer, Exception):
                self._metrics.journal_groups.inc()
                self._metrics.journal_lag_seconds.observe(now - part.waits_since)
            journal.hears(part, answer)
