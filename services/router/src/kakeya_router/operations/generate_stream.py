"""The stream of one Generate: from the worker to the client and the journal, from one worker to the next."""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from kakeya_router.contract import generation
from kakeya_router.operations.lanes import Lanes, is_broken
from kakeya_router.operations.operation import Operation
from kakeya_router.workers.worker_client import WorkerFault
from kakeya_router.workers.worker_clients import WorkerClients
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import verifier_pb2 as worker_api


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
        lanes: Lanes,
        operation: Operation,
        request: api.GenerateRequest,
        sampling: worker_api.Sampling,
        max_tokens: int,
        seconds_left: Callable[[], float | None],
        produced: Sequence[int],
    ) -> None:
        self._workers = workers
        self._lanes = lanes
        self._operation = operation
        self._request = request
        self._sampling = sampling
        self._max_tokens = max_tokens
        self._seconds_left = seconds_left
        self._produced = list(produced)
        record = operation.record
        self._num_dropped = record.num_dropped_at_start if produced else record.num_dropped_tokens
        self._started = time.monotonic()
        self._has_moved = bool(produced)
        self.done: worker_api.GenerateDone

    async def tokens(self) -> AsyncGenerator[api.GenerateResponse, None]:
        """Tokens until the worker is done; raises as `Lanes.regain`, and what the worker raises."""
        while True:
            try:
                async with aclosing(self._from_worker()) as responses:
                    async for response in responses:
                        yield response
                return
            except BaseException as error:
                if not is_broken(self._operation, error):
                    raise
                self._has_moved = True
                missed = await self._lanes.regain(self._operation, error)
            self._produced += missed
            for token_id in missed:
                yield api.GenerateResponse(token_id=token_id)

    async def _from_worker(self) -> AsyncGenerator[api.GenerateResponse, None]:
        operation, journal = self._operation, self._operation.journal
        operation.at_worker = operation.is_answering = True
        request = generation.worker_request(
            operation.record, self._request, self._sampling, self._max_tokens, self._produced
        )
        worker = self._workers.at(operation.record.address)
        stream = worker.generate(request, self._seconds_left(), operation.call, lambda: journal.length)
        async with aclosing(stream) as responses, journal.writing():
            async for response in responses:
                if response.HasField("done"):
                    self.done = self._whole(response.done)
                    return
                self._produced.append(response.token_id)
                journal.add(response.token_id)
                yield generation.token(response)
        raise WorkerFault("the worker's stream ended without `done`")

    def _whole(self, done: worker_api.GenerateDone) -> worker_api.GenerateDone:
        """With what other workers had a part in."""
        if self._has_moved:
            num_kept = sum(part.end - part.start for part in done.lane.retained)
            done.total_duration_seconds = time.monotonic() - self._started
            done.evicted_token_count = done.lane.history_length - num_kept - self._num_dropped
        return done
