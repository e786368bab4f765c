"""One Generate, alone or at the end of a turn, and the tokens it yields."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import grpc

from kakeya._async.calls import AsyncCalls, AsyncStreamCall, AsyncTokens, repeat
from kakeya._async.history import AsyncHistory
from kakeya._async.turn import AsyncTurn, is_unknown
from kakeya._spans._tracing import Span
from kakeya._transport._aio_transport import Eventual, sleep
from kakeya._transport._requests import fill
from kakeya._transport._retry import Deadline, Retry
from kakeya.errors import Cancelled, FoundElsewhere, KakeyaError, OperationStopped, RpcFailed, Unavailable
from kakeya.results import AppendResult, FoundSession, GenerateResult, TokenDetail, Truncation
from kakeya_stubs.v1 import runtime_pb2

if TYPE_CHECKING:
    from kakeya._async.session import AsyncSession

_OP_ID_KEY = "kakeya-op-id"
_RESUME_ATTEMPTS = 8  # backoffs of some seven seconds: as long as a router takes to restart
_LEFT = "the generation was left before its end"


class AsyncGeneration:
    """Yields token ids. Nothing is sent before it is entered, iterated or collected with `all`.

    Entering it appends the tokens of a turn and waits for the first token, so a request that is refused fails there.
    Should the connection break later, or the router be gone, it goes on by itself after the last token that has
    arrived. Leaving it, or an iteration over it, before the end cancels the call; what was generated stays.

    Attributes:
        session: that it is in; None while a turn of a client has not begun.
        found: what the search of a turn came to; None: nothing, or there was none.
        appended: what the append of a turn answered; None without one.
        op_id: names the operation in the runtime's logs and traces; "" before it starts.
        truncated: what the model could not see any more at the start; None if it saw all.
        details: one for each token so far, where `logprobs` asked for them; the last is of the last token.
        done: the result; None before the end, and for ever if the call failed or was cancelled.
        before_going_on: is awaited before it goes on where its stream has broken off; what it raises ends it instead.
            For one that another process may go on with, so that the two do not take it from each other.
    """

    def __init__(
        self,
        calls: AsyncCalls,
        history: AsyncHistory,
        request: runtime_pb2.GenerateRequest,
        *,
        session: "AsyncSession | None",
        timeout_seconds: float | None,
        turn: AsyncTurn | None = None,
    ) -> None:
        self.session = session
        self.found: FoundSession | None = None
        self.appended: AppendResult | None = None
        self.op_id = ""
        self.truncated: Truncation | None = None
        self.details: list[TokenDetail] = []
        self.done: GenerateResult | None = None
        self.before_going_on: Callable[[], Eventual[None]] | None = None
        self._calls = calls
        self._history = history
        # A caller that repeats it goes on with it.
        self._request = fill(request, op_id=request.op_id or secrets.token_hex(8))
        self._timeout_seconds = timeout_seconds
        self._turn = turn
        self._turn_span: Span | None = None  # of a turn that takes several calls
        self._is_begun = self._is_entered = False
        self._call: AsyncStreamCall | None = None  # while it runs, if nobody has cancelled it
        self._failure: KakeyaError | None = None
        self._first: runtime_pb2.GenerateResponse | None = None  # read at the start, not yet taken
        self._token_ids: list[int] = []  # all that have arrived, which are to stand when it goes on elsewhere
        self._deadline = Deadline(None)

    async def __aenter__(self) -> Self:
        await self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def __aiter__(self) -> AsyncTokens:
        return AsyncTokens(self)

    @property
    def resumption(self) -> bytes:
        """What `AsyncClient.go_on` takes, in whichever process: the operation, and how it chooses tokens.

        b"" until the session is there.
        """
        return self._request.SerializeToString() if self._request.session_id else b""

    async def begin(self) -> None:
        """Sends it, and returns when the `session` of a turn is there, of which all parts have been checked then.

        All else begins it by itself. Raises KakeyaError.
        """
        self._raise_failure()
        if self._is_begun:
            return
        self._is_begun = True
        self._deadline = self._calls.operation_deadline(self._timeout_seconds)
        with self._failing():
            if self._turn is None or not await self._begin_turn(self._turn):
                await self._begin_generate()

    async def all(self) -> list[int]:
        """Every token, once the last one is there. Raises KakeyaError."""
        async with self:
            return [token_id async for token_id in self]

    async def next_token(self) -> int | None:
        """The next token, None after the last. Raises KakeyaError; Cancelled where the generation was left before."""
        await self._enter()
        with self._failing():
            while self._call is not None:
                response = await self._next_response(self._call)
                if response.HasField("token_id"):
                    self._token_ids.append(response.token_id)
                    if self._request.HasField("logprobs"):
                        self.details.append(TokenDetail.from_wire(response))
                    return response.token_id
                if response.HasField("truncated"):
                    self.truncated = Truncation.from_wire(response.truncated)
                elif response.HasField("done") and self._call is not None:
                    await self._finish(self._call, response.done)
        self._raise_failure()
        return None

    def cancel(self) -> None:
        """Stops the operation within one step; nothing happens if it is over. Who waits for a token gets Cancelled."""
        if self.done is None and self._failure is None:
            error = Cancelled(_LEFT)
            if self._call is not None:
                self._call.cancel(error)
            self._fail(error)

    async def _enter(self) -> None:
        await self.begin()
        if not self._is_entered and self._call is not None:
            self._is_entered = True
            with self._failing():
                self._first = await self._next_response(self._call)

    async def _begin_turn(self, turn: AsyncTurn) -> bool:
        """Whether the runtime knows turns. Of one that does not, the tokens are appended."""
        if self._calls.runtime.has_turn:
            length = self._history.length
            try:
                await self._history.operate(self._open, turn.retry(self._deadline))
                return True
            except RpcFailed as error:
                if not is_unknown(error):
                    raise
                self._calls.runtime.has_turn = False
                self._history.untouched(length)
        self._turn_span = self._calls.tracer.start("kakeya turn", "internal", session_id=self._request.session_id)
        await turn.in_parts(self._deadline, self._turn_span)
        self._take_from(turn)
        return False

    async def _begin_generate(self) -> None:
        try:
            await self._history.operate(self._open, Retry(self._deadline), parent=self._turn_span)
        except (Unavailable, OperationStopped) as error:
            self._first = await self._go_on(error)

    async def _open(self, expected: int | None) -> AsyncStreamCall:
        # With the first response: a refusal comes instead of it, and is the one failure that may be retried.
        self._raise_failure()
        turn = self._turn if self.appended is None else None
        self._call = call = self._send(turn, expected)
        within_seconds = turn.opening_deadline().remaining_seconds() if turn is not None else None
        try:
            self._first = self._heard(await call.read(within_seconds), call)
            self.op_id = await call.header(_OP_ID_KEY)
            self._raise_failure()  # it may have been cancelled before there was a call to cancel
        except BaseException as error:
            self._call = None
            call.cancel(Cancelled(_LEFT))
            if turn is not None:
                turn.lost(error)
            raise
        return call

    def _send(self, turn: AsyncTurn | None, expected: int | None) -> AsyncStreamCall:
        """Asks for the turn, or where that has appended its tokens, or there is none, for what is generated."""
        if turn is not None:
            return turn.send(self._request, expected, self._deadline)
        request = fill(self._request, expected_history_length=expected)
        return self._calls.stream("Generate", request, self._deadline, parent=self._turn_span)

    def _heard(self, response: Any, call: AsyncStreamCall) -> runtime_pb2.GenerateResponse | None:
        """What the generation says, if that is what it is; what else a turn says is noted."""
        if self._turn is None or not isinstance(response, runtime_pb2.TurnResponse):
            return response  # type: ignore[no-any-return]  # there is nothing else
        if response.HasField("generated"):
            return response.generated
        if response.HasField("found"):
            self.found = FoundSession.from_wire(response.found) if response.found.session_id else None
            if not response.HasField("session"):
                raise FoundElsewhere("the search has come to " + ("another place" if self.found else "nothing"))
            self._turn = self._turn.found(response.found)
        self._turn.hear(response, call.span)
        self._take_from(self._turn)
        return None

    def _take_from(self, turn: AsyncTurn) -> None:
        self.session, self._history, self.appended = turn.session, turn.history, turn.appended
        self._request.session_id = turn.session.id if turn.session is not None else ""
        fill(self._request, expected_history_length=turn.answer_start)

    async def _next_response(self, call: AsyncStreamCall) -> runtime_pb2.GenerateResponse:
        """The next one, from wherever the operation goes on."""
        try:
            return await self._take(call)
        except (Unavailable, OperationStopped) as error:
            return await self._go_on(error)

    async def _go_on(self, error: KakeyaError) -> runtime_pb2.GenerateResponse:
        """The next response of an operation whose stream has broken off, or which may not have begun."""
        is_safe = self._turn is None or self._turn.is_repeatable or self.appended is not None
        max_attempts = _RESUME_ATTEMPTS if self._calls.max_attempts > 1 and is_safe else 1
        retry = Retry(self._deadline, max_attempts=max_attempts, may_go_on=True)
        delay_seconds = retry.delay_seconds(error)
        if self._failure is not None or delay_seconds is None:
            raise error
        await sleep(delay_seconds)
        try:
            return await repeat(self._resume, retry)
        except BaseException as failure:
            self._history.lost(failure)
            raise

    async def _resume(self) -> runtime_pb2.GenerateResponse:
        """Goes on with the operation after the tokens that have arrived, if any may have; the first response since."""
        if self.before_going_on is not None:
            await self.before_going_on()
        self._request.resume_token_ids[:] = self._token_ids
        call = await self._open(None)
        return await self._take(call)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _take(self, call: AsyncStreamCall) -> runtime_pb2.GenerateResponse:
        while self._first is None:
            response = await call.read()
            if response is None:
                raise RpcFailed("the stream ended without a result", status=grpc.StatusCode.INTERNAL)
            self._first = self._heard(response, call)
        first, self._first = self._first, None
        return first

    async def _finish(self, call: AsyncStreamCall, done: runtime_pb2.GenerateDone) -> None:
        self._call = None
        self.done = GenerateResult.from_wire(done)
        self._history.answered(done.history_length)
        call.span.describe(done)
        with suppress(KakeyaError):  # nothing that befalls the connection now can change the result
            if await call.read() is not None:  # such a runtime would wait for us to read the rest
                call.cancel(Cancelled(_LEFT))
        self._end_turn(None)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """What is raised within ends the generation."""
        try:
            yield
        except BaseException as error:
            self._fail(error)
            if self._turn is not None:
                self._turn.failed()
            raise

    def _fail(self, error: BaseException) -> None:
        if self._call is not None:
            self._call = None
            self._history.lost(error)
        self._failure = self._failure or (error if isinstance(error, KakeyaError) else Cancelled(_LEFT))
        self._end_turn(error)

    def _end_turn(self, error: BaseException | None) -> None:
        if self._turn_span is not None:
            self._turn_span.end(error)
