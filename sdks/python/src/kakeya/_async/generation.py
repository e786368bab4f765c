"""One Generate, and the tokens it yields."""

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import grpc

from kakeya._aio_transport import Eventual
from kakeya._async.calls import AsyncCalls, AsyncStreamCall
from kakeya._async.history import AsyncHistory
from kakeya._requests import fill
from kakeya._retry import Deadline, Retry
from kakeya._tracing import Span
from kakeya.errors import Cancelled, KakeyaError, RpcFailed
from kakeya.results import AppendResult, GenerateResult, TokenDetail, Truncation
from kakeya_stubs.v1 import runtime_pb2

_OP_ID_KEY = "kakeya-op-id"
_LEFT = "the generation was left before its end"


class AsyncGeneration:
    """Yields token ids. Nothing is sent before it is entered, iterated or collected with `all`.

    Entering it appends the tokens of a turn and waits for the runtime's first answer, so a request that is
    refused fails there. Leaving it, or an iteration over it, before the end cancels the call; what was generated
    by then stays in the history.

    Attributes:
        appended: what the append of a turn answered; None without one.
        op_id: names the operation in the runtime's logs and traces; "" before it starts.
        truncated: what the model could not see any more at the start; None if it saw all.
        details: one for each token so far, where `logprobs` asked for them; the last one is of the token that
            came last.
        done: the result; None before the end, and for ever if the call failed or was cancelled.
    """

    def __init__(
        self,
        calls: AsyncCalls,
        history: AsyncHistory,
        request: runtime_pb2.GenerateRequest,
        *,
        timeout_seconds: float | None,
        append: Callable[[Span], Eventual[AppendResult]] | None = None,
    ) -> None:
        self.appended: AppendResult | None = None
        self.op_id = ""
        self.truncated: Truncation | None = None
        self.details: list[TokenDetail] = []
        self.done: GenerateResult | None = None
        self._calls = calls
        self._history = history
        self._request = request
        self._timeout_seconds = timeout_seconds
        self._append = append
        self._turn_span: Span | None = None
        self._is_started = False
        self._call: AsyncStreamCall | None = None  # while it runs, if nobody has cancelled it
        self._failure: KakeyaError | None = None
        self._first: runtime_pb2.GenerateResponse | None = None  # read at the start, not yet taken

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def __aiter__(self) -> "AsyncTokens":
        return AsyncTokens(self)

    async def all(self) -> list[int]:
        """Every token, once the last one is there. Raises KakeyaError."""
        async with self:
            return [token_id async for token_id in self]

    async def next_token(self) -> int | None:
        """The next token, None after the last. Raises KakeyaError; Cancelled where the generation was left before."""
        await self._start()
        try:
            while (call := self._call) is not None:
                response = await self._take(call)
                if response.HasField("token_id"):
                    if response.HasField("detail"):
                        self.details.append(TokenDetail.from_wire(response.token_id, response.detail))
                    return response.token_id
                if response.HasField("truncated"):
                    self.truncated = Truncation.from_wire(response.truncated)
                elif response.HasField("done"):
                    await self._finish(call, response.done)
        except BaseException as error:
            self._fail(error)
            raise
        self._raise_failure()
        return None

    def cancel(self) -> None:
        """Stops the operation within one step; nothing happens if it is over.

        Whoever waits for a token meanwhile, in another task or (blocking client only) thread, gets Cancelled.
        """
        if self.done is None and self._failure is None:
            error = Cancelled(_LEFT)
            if self._call is not None:
                self._call.cancel(error)
            self._fail(error)

    async def _start(self) -> None:
        self._raise_failure()
        if self._is_started:
            return
        self._is_started = True
        try:
            if self._append is not None:
                session_id = self._request.session_id
                self._turn_span = self._calls.tracer.start("kakeya turn", "internal", session_id=session_id)
                self.appended = await self._append(self._turn_span)
            retry = Retry(self._calls.operation_deadline(self._timeout_seconds))
            await self._history.operate(
                lambda expected: self._open(expected, retry.deadline), retry, parent=self._turn_span
            )
        except BaseException as error:
            self._fail(error)
            raise

    async def _open(self, expected: int | None, deadline: Deadline) -> None:
        # With the first response: a refusal comes instead of it, and is the one failure that may be retried.
        self._raise_failure()
        fill(self._request, expected_history_length=expected)
        self._call = call = self._calls.stream("Generate", self._request, deadline, parent=self._turn_span)
        try:
            self._first = await call.read()
            self.op_id = await call.header(_OP_ID_KEY)
            self._raise_failure()  # somebody may have cancelled before there was a call to cancel
        except BaseException:
            self._call = None
            call.cancel(Cancelled(_LEFT))
            raise

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _take(self, call: AsyncStreamCall) -> runtime_pb2.GenerateResponse:
        response, self._first = self._first or await call.read(), None
        if response is None:
            raise RpcFailed("the stream ended without a result", status=grpc.StatusCode.INTERNAL)
        return response

    async def _finish(self, call: AsyncStreamCall, done: runtime_pb2.GenerateDone) -> None:
        self._call = None
        self.done = GenerateResult.from_wire(done)
        self._history.settled(done.history_length)
        call.span.describe(done)
        with suppress(KakeyaError):  # nothing that befalls the connection now can change the result
            await call.read()
        self._end_turn(None)

    def _fail(self, error: BaseException) -> None:
        if self._call is not None:
            self._call = None
            self._history.lost(error)
        self._failure = self._failure or (error if isinstance(error, KakeyaError) else Cancelled(_LEFT))
        self._end_turn(error)

    def _end_turn(self, error: BaseException | None) -> None:
        if self._turn_span is not None:
            self._turn_span.end(error)


class AsyncTokens:
    """An iteration over a generation; dropping it, as `break` does, cancels the call."""

    def __init__(self, generation: AsyncGeneration) -> None:
        self._generation = generation

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> int:
        token_id = await self._generation.next_token()
        if token_id is None:
            raise StopAsyncIteration
        return token_id

    def __del__(self) -> None:
        self._generation.cancel()
