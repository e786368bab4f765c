"""AppendTokens: claim the session, journal the tokens, have the worker prefill them, write through what it holds."""

import time
from collections.abc import Sequence

from kakeya_router.contract import validation
from kakeya_router.contract.requests import AppendRequest
from kakeya_router.contract.validation import RequestLimits
from kakeya_router.operations.operation import Operation
from kakeya_router.operations.operations import Operations
from kakeya_router.operations.recovery import Recovery, is_broken
from kakeya_router.snapshots.snapshotting import Snapshotting
from kakeya_router.store.session_record import SessionRecord
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_router.workers.answers import Appended
from kakeya_shared.errors.tree import HistoryFull
from kakeya_shared.process.detached_tasks import DetachedTasks


class Appending:
    """Appends tokens to sessions: those of a request, and those that only the client of a Generate still has."""

    def __init__(
        self,
        operations: Operations,
        recovery: Recovery,
        snapshotting: Snapshotting,
        limits: RequestLimits,
        tasks: DetachedTasks,
    ) -> None:
        self._operations = operations
        self._recovery = recovery
        self._snapshotting = snapshotting
        self._limits = limits
        self._tasks = tasks

    async def append(self, record: SessionRecord, request: AppendRequest) -> Appended:
        """Adds tokens to a session's history; those that are there already, at the expected length, are not added anew.

        Raises:
            TokenOutOfVocabulary, HistoryLengthMismatch: nothing has changed.
            HistoryFull, SnapshotStoreUnavailable: they do not fit; nothing has changed.
            as `Operations.running`
        """
        request.check_vocabulary(record.vocab_size)
        num_tokens, digest = len(request.token_ids), request.digest
        intent = Intent("append", {"num_tokens": num_tokens}, num_tokens, digest)
        async with self._operations.running(record, intent) as operation:
            record, expected = operation.record, request.expected_history_length
            if expected is not None:
                if _is_repeated(record, expected, digest):
                    return _unchanged(record)
                validation.check_history_length(expected, record.history_length)
            if not num_tokens:
                return _unchanged(record)
            self._limits.check_room(record.history_length, num_tokens)
            self._snapshotting.check_room(record, num_tokens)
            answer = await self.add(operation, request.token_ids)
            await self._operations.finish(operation, answer.lane)
        return answer

    async def add(self, operation: Operation, token_ids: Sequence[int]) -> Appended:
        """Adds tokens to the history of a session that is held.

        Raises:
            HistoryFull: they do not fit, and are not in the history.
            WorkerError, KakeyaError: they are in the history, whatever became of the lane.
        """
        operation.calls_worker()
        await operation.journal.write(token_ids)
        return await operation.complete(self._tasks, self._prefilled(operation, token_ids))

    async def _prefilled(self, operation: Operation, token_ids: Sequence[int]) -> Appended:
        started, num_dropped = time.monotonic(), operation.record.num_dropped_tokens
        operation.appends(len(token_ids))
        try:
            return await self._recovery.prefill(operation, token_ids)
        except HistoryFull:
            await self._recovery.retract(operation, operation.record.history_length)
            raise
        except BaseException as error:
            if not is_broken(operation, error):
                raise
            end = operation.journal.length
            await self._recovery.regain(operation, error)
        if operation.record.history_length < end:
            raise HistoryFull("the tokens do not fit, and the session refuses to forget")
        return Appended(
            operation.record.lane, time.monotonic() - started, operation.record.num_dropped_tokens - num_dropped
        )


def _is_repeated(record: SessionRecord, expected_history_length: int, digest: str) -> bool:
    """Whether the history already ends in exactly this append, made at the expected length."""
    last_append = (record.append_start, record.append_end, record.append_digest)
    return last_append == (expected_history_length, record.history_length, digest)


def _unchanged(record: SessionRecord) -> Appended:
    return Appended(record.lane, prefill_duration_seconds=0.0, evicted_token_count=0)
