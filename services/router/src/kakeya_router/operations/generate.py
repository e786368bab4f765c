"""Generate: claim the session, tell what it has forgotten, relay the worker's tokens, write through what it holds."""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace

from kakeya_router.contract import refusals, validation
from kakeya_router.contract.generates import Begun, Done, Ended, Event, GenerateRequest, Token, Truncated
from kakeya_router.contract.grammars import Grammar
from kakeya_router.contract.validation import RequestLimits
from kakeya_router.metrics import RouterMetrics
from kakeya_router.operations.append import Appending
from kakeya_router.operations.operation import Operation
from kakeya_router.operations.operations import Operations
from kakeya_router.operations.pace import Pace
from kakeya_router.operations.recovery import Recovery, is_broken
from kakeya_router.snapshots.snapshotting import Snapshotting
from kakeya_router.store.session_record import SessionRecord, ranges_text
from kakeya_router.store.sessions.operation_store import LastTurn
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_router.workers.worker_errors import WorkerError, WorkerFault
from kakeya_shared.errors.tree import Draining, EmptyHistory, OperationStopped

# The end of a stream does not wait for a worker that hangs.
CLOSE_SECONDS = 1.0
# The library's limits end a grammar's compilation within a second; others' may come before it.
_CHECK_SECONDS = 30.0

SecondsLeft = Callable[[], float | None]


@dataclass(frozen=True, slots=True)
class Generating:
    """Generates answers; called by the service, and by `Turning`, whose operation has appended before."""

    _operations: Operations
    recovery: Recovery
    appending: Appending
    snapshotting: Snapshotting
    workers: WorkerClients
    _limits: RequestLimits
    metrics: RouterMetrics

    async def generate(
        self, record: SessionRecord, request: GenerateRequest, seconds_left: SecondsLeft
    ) -> AsyncGenerator[Event, None]:
        """Events in their order: begun, at most one truncated, tokens, ended.

        Args:
            seconds_left: until the client's deadline; None: it has none.

        Raises:
            TokenOutOfVocabulary, HistoryLengthMismatch, EmptyHistory, HistoryFull: nothing has changed.
            InvalidField, OperationStopped: it cannot be gone on with.
            SnapshotStoreUnavailable: what it says could be lost with the session's worker.
            as `Operations.running`
        """
        request.check_vocabulary(record.vocab_size)
        async with self._operations.running(record, request.intent) as operation:
            record = operation.record
            if request.expected_history_length is not None:
                validation.check_history_length(request.expected_history_length, record.operation_start)
            if not record.operation_start:
                raise EmptyHistory("append tokens before generating")
            if operation.journal.length < record.operation_start:  # a Turn's, which has not appended
                raise refusals.unknown_operation(record)
            max_tokens = self._limits.within_room(record.operation_start, request.max_tokens)
            yield Begun(operation.op_id)
            answer = Answer(self, operation, request, max_tokens, seconds_left)
            async with aclosing(answer.events()) as events:
                async for event in events:
                    yield event
            await self._operations.finish(operation, answer.ended.done.lane)
        yield answer.ended
        await operation.closed(CLOSE_SECONDS)

    async def check_grammar(self, record: SessionRecord, grammar: Grammar) -> None:
        """Before a turn appends; a worker that is lost now is found to be by what the turn asks of it next.

        Raises:
            InvalidField: the session's worker cannot use it, or the session not.
        """
        if not record.eos_token_ids:
            raise validation.invalid("grammar", "the session has no EOS tokens, with which an answer under one ends")
        with suppress(WorkerError, Draining):
            await self.workers.at(record.address).check_grammar(grammar.message, _CHECK_SECONDS)


@dataclass(eq=False)
class Answer:
    """What one operation generates, with what it has generated before; it begins where the operation's append ends.

    Attributes:
        _max_tokens: as far as the history has room.
        ended: for when the session is free again, once the events have ended.
    """

    _of: Generating
    _operation: Operation
    _request: GenerateRequest
    _max_tokens: int
    _seconds_left: SecondsLeft
    ended: Ended = field(init=False)

    async def events(self) -> AsyncGenerator[Truncated | Token, None]:
        """At most one truncated, then tokens; raises as `Generating.generate`."""
        operation, request, record = self._operation, self._request, self._operation.record
        if request.op_id:  # of the first attempt, if there was one
            request = replace(request, sampling=replace(request.sampling, seed=record.operation_seed))
        is_under_way = operation.journal.length > record.operation_start or request.resume_token_ids
        produced = await self._produced() if is_under_way else []
        if not produced:
            await self._of.snapshotting.check_room(record, 0)
        if not request.resume_token_ids and (truncated := _truncated(record, is_under_way=bool(produced))):
            yield truncated
        of = self._of
        pace = Pace(of.metrics, record.tenant, operation.began, is_whole=not produced)
        for token_id in produced[len(request.resume_token_ids) :]:
            pace.sees_first()
            yield Token(token_id)
        max_tokens = self._max_tokens
        stream = _Stream(of.workers, of.recovery, operation, request, max_tokens, self._seconds_left, produced, pace)
        async with aclosing(stream.tokens()) as tokens:
            with pace.measured():
                async for token in tokens:
                    yield token
        operation.has_answered(self._took(stream.done, pace), lane_freed=stream.done.session_closed)
        self.ended = Ended(stream.done, operation.op_id, request.sampling.seed, max_tokens < request.max_tokens)

    def _took(self, done: Done, pace: Pace) -> LastTurn:
        total_seconds = time.monotonic() - self._operation.began
        num_tokens = done.generated_token_count
        return LastTurn(
            done.prefill_duration_seconds,
            pace.first_token_seconds,
            total_seconds,
            num_tokens,
            num_drafted=done.drafted_token_count,
            num_accepted=done.accepted_token_count,
        )

    async def _produced(self) -> list[int]:
        """The tokens of a Generate that is gone on with; those that the client has seen stand.

        Raises:
            InvalidField: the client has seen others.
            OperationStopped: the journal does not reach back to where it began.
        """
        operation = self._operation
        start, seen = operation.record.operation_start, list(self._request.resume_token_ids)
        journaled = await self._of.recovery.journaled(operation)
        known = journaled.token_ids(start, operation.journal.length)
        if operation.record.journal_start > start or journaled.is_damaged:
            raise OperationStopped("the journal does not reach back to where the operation began, or is damaged")
        num_common = min(len(known), len(seen))
        if known[:num_common] != seen[:num_common]:
            raise validation.invalid("resume_token_ids", "these are not the tokens of that operation")
        if missing := seen[num_common:]:
            await self._of.appending.add(operation, missing)
        return [*known, *missing]


@dataclass(eq=False)
class _Stream:
    """What one operation produces, from one worker to the next; a client sees of a lost one nothing but a pause.

    Attributes:
        _max_tokens: as far as the history has room.
        _produced: its tokens so far; those before it began the client has.
        done: the worker's last word, once the tokens have ended.
    """

    _workers: WorkerClients
    _recovery: Recovery
    _operation: Operation
    _request: GenerateRequest
    _max_tokens: int
    _seconds_left: SecondsLeft
    _produced: list[int]
    _pace: Pace

    def __post_init__(self) -> None:
        self._started = time.monotonic()
        self._began = self._operation.record
        self._is_in_parts = self._is_under_way = bool(self._produced)
        self.done: Done

    async def tokens(self) -> AsyncGenerator[Token, None]:
        """Tokens until the worker is done; raises as `Recovery.recover`, and what the worker raises."""
        while True:
            try:
                async with aclosing(self._from_worker()) as tokens:
                    async for token in tokens:
                        yield token
                return
            except BaseException as error:
                if not is_broken(self._operation, error):
                    raise
                self._is_in_parts = True
                missed = await self._recovery.recover(self._operation, error)
            self._produced += missed
            for token_id in missed:
                self._pace.count()
                yield Token(token_id)

    async def _from_worker(self) -> AsyncGenerator[Token, None]:
        operation, journal = self._operation, self._operation.journal
        operation.answers()
        record = operation.record
        message = self._request.message(
            record, max_tokens=self._max_tokens, produced=self._produced, closes=operation.ends_session
        )
        stream = self._workers.at(record.address).generate(
            record, message, self._seconds_left(), operation.call, lambda: journal.length
        )
        with journal.writing():
            async with aclosing(stream) as answers:
                async for answer in answers:
                    if isinstance(answer, Done):
                        self.done = self._whole(answer)
                        return
                    self._pace.count()
                    self._produced.append(answer.token_id)
                    journal.add(answer.token_id)
                    yield answer
        raise WorkerFault("the worker's stream ended without `done`")

    def _whole(self, done: Done) -> Done:
        """With what other workers had a part in."""
        if not self._is_in_parts:
            return done
        began = self._began
        num_dropped = began.num_dropped_at_start if self._is_under_way else began.lane.num_dropped_tokens
        return replace(
            done,
            total_duration_seconds=time.monotonic() - self._started,
            evicted_token_count=done.lane.num_dropped_tokens - num_dropped,
        )


def _truncated(record: SessionRecord, *, is_under_way: bool) -> Truncated | None:
    """What was forgotten when the operation began; `is_under_way`: its lane has taken in more since."""
    if not is_under_way:
        dropped = record.lane.num_dropped_tokens
        return Truncated(dropped, record.retained) if dropped else None
    if not record.num_dropped_at_start:
        return None
    start = record.operation_start
    kept = [range(record.sink), range(start - record.window, start)]
    return Truncated(record.num_dropped_at_start, ranges_text(part for part in kept if part))
