"""A turn: one operation that appends and then generates, under one claim, one lease and one id.

Its record in the store is that of a Generate which begins where its append ends, so that any router can go on with it.
The same turn, by its op_id, may come again at any time before its client has seen `appended`. What is there then:

- no operation of this id (it was never begun, or gave up before it wrote): it begins.
- its record, and nothing journaled (its router vanished between claim and journal): the record is ended, and it begins
  again, with the seed that it had.
- its tokens journaled, all of them since that is one script, and its lane without them, or with some (the router or the
  worker vanished in the prefill): the lane catches up from the journal, and the answer begins. Nothing is appended.
- tokens of the answer journaled, or in the lane alone (vanished in the stream): as where a Generate is gone on with:
  they are told first, and the worker goes on behind them, as far as they are not the whole answer already.
- its end (the answers were lost): likewise, and the worker adds nothing.
- another operation that came after it: it is a new turn. Nobody else knows the id of a session that the turn itself
  has made, and at a place with a boundary it takes a fork, so that nothing comes to stand behind what is there.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from kakeya_router.contract import turns, validation
from kakeya_router.contract.appends import Appended
from kakeya_router.contract.turns import Held, TurnEvent, TurnRequest, part
from kakeya_router.contract.validation import RequestLimits
from kakeya_router.operations.append import Appending
from kakeya_router.operations.generate import CLOSE_SECONDS, Answer, Generating, SecondsLeft
from kakeya_router.operations.operation import Operation
from kakeya_router.operations.operations import Operations
from kakeya_router.snapshots.snapshotting import Snapshotting
from kakeya_router.store.session_record import SessionRecord
from kakeya_shared.errors.tree import EmptyHistory


@dataclass(frozen=True, slots=True)
class Turning:
    """Appends and generates in one operation; called by `Turns`, which finds or makes the session."""

    _operations: Operations
    _appending: Appending
    _generating: Generating
    _snapshotting: Snapshotting
    _limits: RequestLimits

    async def turn(
        self, record: SessionRecord, request: TurnRequest, boundary: int | None, seconds_left: SecondsLeft
    ) -> AsyncGenerator[TurnEvent, None]:
        """Events in their order: held, appended, at most one truncated, tokens, ended.

        A turn that closes the session does so however it ends, from its append on.

        Args:
            boundary: the history length at which it begins; None: wherever that is.

        Raises:
            Elsewhere, OperationRunning: before any event: the session is not idle there.
            InvalidField: an earlier turn of this op_id had other tokens.
            TokenOutOfVocabulary, EmptyHistory, HistoryFull, SnapshotStoreUnavailable: nothing has changed.
            as `Generating.generate`
        """
        request.check(record.vocab_size)
        async with self._operations.running(record, request.intent(boundary)) as operation:
            max_tokens = await self._checked(operation, request)
            start = operation.record.operation_start - len(request.token_ids)
            yield Held(operation.op_id, replace(operation.record, history_length=start))
            yield await self._appended(operation, request)
            answer = Answer(self._generating, operation, request.generate, max_tokens, seconds_left)
            async with aclosing(answer.events()) as events:
                async for event in events:
                    yield event
            await self._operations.finish(operation, answer.ended.done.lane)
        yield answer.ended
        await operation.closed(CLOSE_SECONDS)

    async def _checked(self, operation: Operation, request: TurnRequest) -> int:
        """Whether all of it can be done, before any of it is: for how many tokens there is room. Raises as `turn`."""
        record, num_tokens = operation.record, len(request.token_ids)
        with part("append"):
            if not record.operation_start:
                raise EmptyHistory("the session has no history to generate from without tokens")
            if _is_to_append(operation):
                _check_same(operation.journal.length + num_tokens == record.operation_start)
                self._limits.check_room(operation.journal.length, num_tokens)
                request.check_lane(record, operation.journal.length)
                await self._snapshotting.check_room(record, num_tokens)
            elif num_tokens:
                _check_same((record.append_end, record.append_digest) == (record.operation_start, request.digest))
        with part("generate"):
            if request.generate.grammar is not None and _is_to_append(operation):
                await self._generating.check_grammar(record, request.generate.grammar)
            return self._limits.within_room(record.operation_start, request.generate.max_tokens)

    async def _appended(self, operation: Operation, request: TurnRequest) -> Appended:
        is_to_append = _is_to_append(operation)
        if request.close:
            operation.closes_session()
        if is_to_append:
            appended = await self._appending.add(operation, request.token_ids, start_tags=request.start_tags)
        else:
            appended = turns.appended_before(operation.record)
            if request.start_tags:
                await operation.tag_start(request.start_tags)
        operation.answers()  # a client that leaves now does not come back for the rest
        return appended


def _check_same(is_same: bool) -> None:
    if not is_same:
        raise validation.invalid("spans", "an earlier Turn with this op_id had other tokens")


def _is_to_append(operation: Operation) -> bool:
    """Not where an earlier attempt of the turn has."""
    return operation.journal.length < operation.record.operation_start
