"""Answers on their way to routers: of all that a router reads from one stream a step's tokens are one message."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NoReturn

import grpc

from kakeya_shared.errors.tree import InvalidField, KakeyaError
from kakeya_shared.rpc import rpc_boundary
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_worker.engine.lanes.operation import Generate
from kakeya_worker.engine.sampling.sampling import TokenDetail

_GENERATE = "/kakeya.worker.v1.VerifierService/Generate"

Acknowledge = Callable[[Generate, int, int], None]
"""See `Engine.acknowledge`."""

Serve = Callable[["AnswerStream", int, pb.GenerateRequest], AsyncIterator[pb.GenerateResponse]]
"""Generates the answer of that number; all but its tokens is in the responses."""


class AnswerStream:
    """One of a router. Tokens are put and handed over on the engine's thread, all else happens on the loop's.

    No more wait here than are unread of its answers, each of which pauses.
    """

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._answering: dict[int, asyncio.Task[None]] = {}
        self._generates: dict[int, Generate] = {}
        self._loop = asyncio.get_running_loop()
        self._handed_over: asyncio.Queue[pb.StreamAnswersResponse | None] = asyncio.Queue()  # None: it has ended
        self._of_step = pb.StreamAnswersResponse()
        self._is_ending = False

    @contextmanager
    def gives(self, answer: int, generate: Generate) -> Iterator[None]:
        """Its reader says inside what it has read."""
        self._generates[answer] = generate
        try:
            yield
        finally:
            del self._generates[answer]

    def put(self, answer: int, token_id: int, detail: TokenDetail | None) -> None:
        """One token of a step."""
        of_step = self._of_step
        if detail is not None:
            of_step.details[len(of_step.answers)].CopyFrom(detail_message(detail))
        of_step.answers.append(answer)
        of_step.token_ids.append(token_id)

    def hand_over(self) -> None:
        """The tokens of a step are there."""
        of_step, self._of_step = self._of_step, pb.StreamAnswersResponse()
        self._loop.call_soon_threadsafe(self._handed_over.put_nowait, of_step)

    def end(self) -> None:
        """Once all that is answered has been told how it ends."""
        self._is_ending = True
        self._look()

    async def responses(self) -> AsyncIterator[pb.StreamAnswersResponse]:
        """Until it ends."""
        while (response := await self._handed_over.get()) is not None:
            yield response

    async def hear(self, requests: AsyncIterator[pb.StreamAnswersRequest], acknowledge: Acknowledge) -> None:
        """Takes in what the router asks and has read, until that ends."""
        with suppress(grpc.RpcError, KakeyaError):  # it is gone, or says what is no message
            async for request in requests:
                if request.HasField("begun"):
                    self._begin(request.begun)
                for said in request.acknowledged:
                    if (generate := self._generates.get(said.answer)) is not None:
                        acknowledge(generate, said.num_tokens, said.journaled_length)
                for number in request.cancelled:
                    if (answering := self._answering.get(number)) is not None:
                        answering.cancel()
        self._handed_over.put_nowait(None)

    def cancel(self) -> set["asyncio.Task[None]"]:
        """Ends what is answered still, since there is no reader; the tasks that are about to end."""
        answering = set(self._answering.values())
        for task in answering:
            task.cancel()
        return answering

    def _begin(self, begun: pb.BegunAnswer) -> None:
        number = begun.answer
        if number in self._answering:
            raise InvalidField("an answer of that number runs in this stream", metadata={"field": "begun.answer"})
        self._answering[number] = answering = asyncio.create_task(self._answer(begun))
        # One that is cancelled before it has begun runs none of its lines.
        answering.add_done_callback(lambda _: self._has_ended(number))

    def _has_ended(self, number: int) -> None:
        del self._answering[number]
        self._look()

    def _look(self) -> None:
        if self._is_ending and not self._answering:
            self._handed_over.put_nowait(None)

    async def _answer(self, begun: pb.BegunAnswer) -> None:
        def generate(request: pb.GenerateRequest, _context: object) -> AsyncIterator[pb.GenerateResponse]:
            return self._serve(self, begun.answer, request)

        told = _Told(pb.EndedAnswer(answer=begun.answer))
        with suppress(grpc.aio.AbortError):  # it is told
            await rpc_boundary.carry(_GENERATE, tuple(begun.metadata.items()), generate, begun.request, told)
        self._handed_over.put_nowait(pb.StreamAnswersResponse(ended=(told.ended,)))


@dataclass(frozen=True)
class _Told:
    """What a context is to a call of its own: takes down how an answer has ended."""

    ended: pb.EndedAnswer

    async def write(self, response: pb.GenerateResponse) -> None:
        self.ended.done.CopyFrom(response.done)

    async def abort(self, _code: grpc.StatusCode, _details: str, trailing: tuple[tuple[str, bytes]]) -> NoReturn:
        ((_key, self.ended.failed),) = trailing
        raise grpc.aio.AbortError


@dataclass(eq=False)
class AnswerStreams:
    """Those that routers hold."""

    _standing: set[AnswerStream] = field(default_factory=set, init=False)

    async def stand(
        self, requests: AsyncIterator[pb.StreamAnswersRequest], serve: Serve, acknowledge: Acknowledge
    ) -> AsyncGenerator[pb.StreamAnswersResponse, None]:
        """One more, until the router ends it or this worker does."""
        stream = AnswerStream(serve)
        self._standing.add(stream)
        hearing = asyncio.create_task(stream.hear(requests, acknowledge))
        try:
            async for response in stream.responses():
                yield response
        finally:
            self._standing.remove(stream)
            hearing.cancel()
            ending = stream.cancel()  # before anything is waited for: gRPC may cancel this a second time
            await asyncio.wait([hearing, *ending])

    def end(self) -> None:
        """Ends all: this process does."""
        for stream in self._standing:
            stream.end()


def detail_message(detail: TokenDetail) -> pb.TokenDetail:
    top = [pb.TokenLogprob(token_id=token_id, logprob=logprob) for token_id, logprob in detail.top]
    return pb.TokenDetail(logprob=detail.logprob, top_logprobs=top)
