"""Generate: claim the session, tell what it has forgotten, relay the worker's tokens, write through what it holds."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from kakeya_router.contract import validation
from kakeya_router.contract.requests import GenerateRequest
from kakeya_router.contract.validation import RequestLimits
from kakeya_router.operations.append import Appending
from kakeya_router.operations.generate_stream import GenerateStream
from kakeya_router.operations.operation import Operation
from kakeya_router.operations.operations import Operations
from kakeya_router.operations.recovery import Recovery
from kakeya_router.snapshots.snapshotting import Snapshotting
from kakeya_router.store.session_record import SessionRecord, ranges_text
from kakeya_router.workers.answers import Done, Token
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_shared.errors.tree import EmptyHistory, OperationStopped

# The end of a stream does not wait for a worker that hangs.
_CLOSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Begun:
    """The session is held; first of all events."""

    op_id: str


@dataclass(frozen=True, slots=True)
class Truncated:
    """What the session had forgotten at the start; `retained` as in `LaneState`."""

    dropped_token_count: int
    retained: str


@dataclass(frozen=True, slots=True)
class Ended:
    """Last of all events; the session is free.

    Attributes:
        is_capped: the worker was asked for fewer tokens than the client asks for.
    """

    done: Done
    op_id: str
    seed: int
    is_capped: bool


Event = Begun | Truncated | Token | Ended


class Generating:
    """Generates answers; called by the service."""

    def __init__(
        self,
        operations: Operations,
        recovery: Recovery,
        appending: Appending,
        snapshotting: Snapshotting,
        workers: WorkerClients,
        limits: RequestLimits,
    ) -> None:
        self._operations = operations
        self._recovery = recovery
        self._appending = appending
        self._snapshotting = snapshotting
        self._workers = workers
        self._limits = limits

    async def generate(
        self, record: SessionRecord, request: GenerateRequest, seconds_left: Callable[[], float | None]
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
            if request.op_id:
                request = request.seeded(record.operation_seed)
            max_tokens = self._limits.within_room(record.operation_start, request.max_tokens)
            yield Begun(operation.op_id)
            produced = await self._produced(operation, request) if request.op_id else []
            if not produced:
                self._snapshotting.check_room(record, 0)
            if not request.resume_token_ids and (truncated := _truncated(record, is_under_way=bool(produced))):
                yield truncated
            for token_id in produced[len(request.resume_token_ids) :]:
                yield Token(token_id)
            stream = GenerateStream(
                self._workers, self._recovery, operation, request, max_tokens, seconds_left, produced
            )
            async with aclosing(stream.tokens()) as tokens:
                async for token in tokens:
                    yield token
            await self._operations.finish(operation, stream.done.lane)
        yield Ended(stream.done, operation.op_id, request.sampling.seed, max_tokens < request.max_tokens)
        await operation.closed(_CLOSE_SECONDS)

    async def _produced(self, operation: Operation, request: GenerateRequest) -> list[int]:
        """The tokens of a Generate that is gone on with; those that the client has seen stand.

        Raises:
            InvalidField: the client has seen others.
            OperationStopped: the journal does not reach back to where it began.
        """
        start, seen = operation.record.operation_start, list(request.resume_token_ids)
        journaled = await self._recovery.journaled(operation)
        known = journaled.token_ids(start, operation.journal.length)
        if operation.record.journal_start > start or journaled.is_damaged:
            raise OperationStopped("the journal does not reach back to where the operation began, or is damaged")
        num_common = min(len(known), len(seen))
        if known[:num_common] != seen[:num_common]:
            raise validation.invalid("resume_token_ids", "these are not the tokens of that operation")
        if missing := seen[num_common:]:
            await self._appending.add(operation, missing)
        return [*known, *missing]


def _truncated(record: SessionRecord, *, is_under_way: bool) -> Truncated | None:
    """What was forgotten when the operation began; `is_under_way`: its lane has taken in more since."""
    if not is_under_way:
        dropped = record.num_dropped_tokens
        return Truncated(dropped, record.retained) if dropped else None
    if not record.num_dropped_at_start:
        return None
    start = record.operation_start
    kept = [range(record.sink), range(start - record.window, start)]
    return Truncated(record.num_dropped_at_start, ranges_text(part for part in kept if part))
