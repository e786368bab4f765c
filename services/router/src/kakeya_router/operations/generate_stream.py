"""The stream of one Generate: from the worker to the client and the journal, from one worker to the next."""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from kakeya_router.contract.requests import GenerateRequest
from kakeya_router.operations.operation import Operation
from kakeya_router.operations.recovery import Recovery, is_broken
from kakeya_router.workers.answers import Done, Token
from kakeya_router.workers.worker_client import WorkerFault
from kakeya_router.workers.worker_clients import WorkerClients


class GenerateStream:
    """Relays what one operation produces; a client sees of a lost worker nothing but a pause.

    Args:
        max_tokens: as far as the history has room.
        seconds_left: until the client's deadline; None: it has none.
        produced: its tokens before, which the client has.

    Attributes:
        done: the worker's last word, once the tokens have ended.
    """

    def __init__(
        self,
        workers: WorkerClients,
        recovery: Recovery,
        operation: Operation,
        request: GenerateRequest,
        max_tokens: int,
        seconds_left: Callable[[], float | None],
        produced: Sequence[int],
    ) -> None:
        self._workers = workers
        self._recovery = recovery
        self._operation = operation
        self._request = request
        self._max_tokens = max_tokens
        self._seconds_left = seconds_left
        self._produced = list(produced)
        record = operation.record
        self._num_dropped = record.num_dropped_at_start if produced else record.num_dropped_tokens
        self._started = time.monotonic()
        self._has_moved = bool(produced)
        self.done: Done

    async def tokens(self) -> AsyncGenerator[Token, None]:
        """Tokens until the worker is done; raises as `Recovery.regain`, and what the worker raises."""
        while True:
            try:
                async with aclosing(self._from_worker()) as tokens:
                    async for token in tokens:
                        yield token
                return
            except BaseException as error:
                if not is_broken(self._operation, error):
                    raise
                self._has_moved = True
                missed = await self._recovery.regain(self._operation, error)
            self._produced += missed
            for token_id in missed:
                yield Token(token_id)

    async def _from_worker(self) -> AsyncGenerator[Token, None]:
        operation, journal = self._operation, self._operation.journal
        operation.answers()
        stream = self._workers.at(operation.record.address).generate(
            operation.record,
            self._request,
            self._seconds_left(),
            operation.call,
            lambda: journal.length,
            max_tokens=self._max_tokens,
            produced=self._produced,
        )
        async with aclosing(stream) as answers, journal.writing():
            async for answer in answers:
                if isinstance(answer, Done):
                    self.done = self._whole(answer)
                    return
                self._produced.append(answer.token_id)
                journal.add(answer.token_id)
                yield answer
        raise WorkerFault("the worker's stream ended without `done`")

    def _whole(self, done: Done) -> Done:
        """With what other workers had a part in."""
        if not self._has_moved:
            return done
        return replace(
            done,
            total_duration_seconds=time.monotonic() - self._started,
            evicted_token_count=done.lane.num_dropped_tokens - self._num_dropped,
        )
