"""Tokens on their way to routers: what a step has for all answers of one is one message."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import grpc

from kakeya_shared.errors.tree import KakeyaError, OperationStopped
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_worker.engine.lanes.operation import Generate
from kakeya_worker.engine.sampling.sampling import TokenDetail

Acknowledge = Callable[[Generate, int, int], None]
"""See `Engine.acknowledge`."""


class TokenStream:
    """One of a router. Tokens are put and handed over on the engine's thread, all else happens on the loop's.

    No more wait here than are unread of its answers, each of which pauses.

    Attributes:
        number: names it to who generates.
    """

    def __init__(self) -> None:
        self.number = secrets.randbits(63) + 1
        self._generates: dict[int, Generate] = {}
        self._loop = asyncio.get_running_loop()
        self._handed_over: asyncio.Queue[pb.StreamTokensResponse | None] = asyncio.Queue()  # None: it has ended
        self._of_step = pb.StreamTokensResponse()

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
        of_step, self._of_step = self._of_step, pb.StreamTokensResponse()
        self._loop.call_soon_threadsafe(self._handed_over.put_nowait, of_step)

    def end(self) -> None:
        self._handed_over.put_nowait(None)

    async def responses(self) -> AsyncIterator[pb.StreamTokensResponse]:
        """Until it ends."""
        yield pb.StreamTokensResponse(stream=self.number)
        while (of_step := await self._handed_over.get()) is not None:
            yield of_step

    async def hear(self, requests: AsyncIterator[pb.StreamTokensRequest], acknowledge: Acknowledge) -> None:
        """Takes in what the router has read, until that ends."""
        with suppress(grpc.RpcError, KakeyaError):  # it is gone, or says what is no message
            async for request in requests:
                for said in request.acknowledged:
                    if (generate := self._generates.get(said.answer)) is not None:
                        acknowledge(generate, said.num_tokens, said.journaled_length)
        self.end()


@dataclass(eq=False)
class TokenStreams:
    """Those that routers hold."""

    _standing: dict[int, TokenStream] = field(default_factory=dict, init=False)

    def find(self, number: int) -> TokenStream:
        """Raises OperationStopped: it has ended, and nobody would have the tokens."""
        stream = self._standing.get(number)
        if stream is None:
            raise OperationStopped("the stream of its tokens has ended")
        return stream

    async def stand(
        self, requests: AsyncIterator[pb.StreamTokensRequest], acknowledge: Acknowledge
    ) -> AsyncGenerator[pb.StreamTokensResponse, None]:
        """One more, until the router ends it or this worker does."""
        stream = TokenStream()
        self._standing[stream.number] = stream
        hearing = asyncio.create_task(stream.hear(requests, acknowledge))
        try:
            async for response in stream.responses():
                yield response
        finally:
            del self._standing[stream.number]
            hearing.cancel()
            await asyncio.wait([hearing])

    def end(self) -> None:
        """Ends all: this process does."""
        for stream in self._standing.values():
            stream.end()


def detail_message(detail: TokenDetail) -> pb.TokenDetail:
    top = [pb.TokenLogprob(token_id=token_id, logprob=logprob) for token_id, logprob in detail.top]
    return pb.TokenDetail(logprob=detail.logprob, top_logprobs=top)
