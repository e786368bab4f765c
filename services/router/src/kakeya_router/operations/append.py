"""AppendTokens: claim the session, journal the tokens, have the worker prefill them, write through what it holds."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_router.contract import validation
from kakeya_router.contract.appends import Appended, AppendRequest
from kakeya_router.contract.validation import RequestLimits
from kakeya_router.metrics import RouterMetrics
from kakeya_router.operations.operation import Operation
from kakeya_router.operations.operations import Operations
from kakeya_router.operations.recovery import Recovery, is_broken
from kakeya_router.snapshots.snapshotting import Snapshotting
from kakeya_router.store.session_record import SessionRecord
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_shared.errors.tree import HistoryFull


@dataclass(frozen=True, slots=True)
class Appending:
    """Appends tokens to sessions: those of a request, and those that only the client of a Generate still has."""

    _operations: Operations
    _recovery: Recovery
    _snapshotting: Snapshotting
    _workers: WorkerClients
    _limits: RequestLimits
    _metrics: RouterMetrics

    async def append(self, record: SessionRecord, request: AppendRequest) -> Appended:
        """Adds tokens to a session's history; those that are there already, at the expected length, are not added anew.

        Raises:
            TokenOutOfVocabulary, HistoryLengthMismatch: nothing has changed.
            HistoryFull, SnapshotStoreUnavailable: they do not fit; nothing has changed.
            as `Operations.running`
        """
        validation.check_vocabulary("token_ids", request.token_ids, record.vocab_size)
        async with self._operations.running(record, request.intent) as operation:
            record, expected, num_tokens = operation.record, request.expected_history_length, len(request.token_ids)
            if expected is not None:
                last_append = (record.append_start, record.append_end, record.append_digest)
                if last_append == (expected, record.history_length, request.intent.digest):
                    return Appended(record.lane)
                validation.check_history_length(expected, record.history_length)
            if not num_tokens:
                return Appended(record.lane)
            self._limits.check_room(record.history_length, num_tokens)
            await self._snapshotting.check_room(record, num_tokens)
            answer = await self.add(operation, request.token_ids, request.logprobs)
            await self._operations.finish(operation, answer.lane)
        return answer

    async def add(
        self,
        operation: Operation,
        token_ids: Sequence[int],
        logprobs: int | None = None,
        *,
        start_tags: Sequence[str] = (),
    ) -> Appended:
        """Adds tokens to the history of a session that is held.

        Args:
            start_tags: of the place behind them, where an answer begins.

        Raises:
            HistoryFull: they do not fit, and are not in the history.
            WorkerError, KakeyaError: they are in the history, whatever became of the lane.
        """
        await operation.append(token_ids, start_tags)
        self._metrics.count_appended(operation.record.tenant, len(token_ids))
        return await operation.complete(self._prefilled(operation, token_ids, logprobs))

    async def _prefilled(self, operation: Operation, token_ids: Sequence[int], logprobs: int | None) -> Appended:
        started, before, end = time.monotonic(), operation.record, operation.journal.length
        try:
            return await operation.prefill(self._workers.at(before.address), token_ids, logprobs)
        except HistoryFull:
            await self._recovery.retract(operation, before.history_length)
            raise
        except BaseException as error:
            if not is_broken(operation, error):
                raise
            await self._recovery.recover(operation, error)
        lane = operation.record.lane
        if lane.history_length < end:
            raise HistoryFull("the tokens do not fit, and the session refuses to forget")
        num_evicted = lane.num_dropped_tokens - before.lane.num_dropped_tokens
        return Appended(lane, time.monotonic() - started, num_evicted)
