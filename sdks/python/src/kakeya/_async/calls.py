"""Calls of the runtime's contract: each attempt has a span and a typed error, and may be repeated; and loops that end
one with them.
"""

import copy
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc
from google.protobuf.message import Message

from kakeya._spans._tracing import Metadata, Span, Tracer
from kakeya._transport import _api_key
from kakeya._transport._aio_transport import Errands, Eventual, Stream, Transport, sleep
from kakeya._transport._api_key import ApiKey
from kakeya._transport._retry import Deadline, Retry
from kakeya.errors import KakeyaError
from kakeya_stubs.admin.v1 import admin_pb2
from kakeya_stubs.v1 import runtime_pb2

if TYPE_CHECKING:
    from kakeya._async.generation import AsyncGeneration

T = TypeVar("T")

_GIVE_UP_SECONDS = 30.0
"""A router that is slow, or that comes back, is told in that time."""
_LAST_ERRANDS_SECONDS = 2.0
_ADMIN_SERVICE = admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name
_SERVICE = runtime_pb2.DESCRIPTOR.services_by_name["RuntimeService"].full_name


@dataclass(slots=True)
class Runtime:
    """What calls have shown of the runtime.

    Attributes:
        has_turn: False once one has shown that it is of a version without Turn.
    """

    has_turn: bool = True


class AsyncCalls:
    """The calls of one client.

    Args:
        address: HOST:PORT, or any target that gRPC knows.
        credentials: None for plaintext.
        api_key: None for none.
        tracer: where spans come from.
        max_attempts: how often a call that is safe to repeat may meet UNAVAILABLE.
        timeout_seconds: of calls whose work does not depend on the number of tokens.
        operation_timeout_seconds: of AppendTokens, Generate and Turn.

    Attributes:
        runtime: shared with the same calls under other keys.
    """

    def __init__(
        self,
        address: str,
        credentials: grpc.ChannelCredentials | None,
        api_key: ApiKey | None,
        *,
        tracer: Tracer,
        max_attempts: int,
        timeout_seconds: float | None,
        operation_timeout_seconds: float | None,
    ) -> None:
        self.tracer = tracer
        self.max_attempts = max_attempts
        self.runtime = Runtime()
        self._timeout_seconds = timeout_seconds
        self._operation_timeout_seconds = operation_timeout_seconds
        self._api_key = api_key
        self._transport = Transport(address, credentials)
        self._errands = Errands()
        self._closed = False

    def with_api_key(self, api_key: ApiKey | None) -> "AsyncCalls":
        """The same calls over the same connection, with another key."""
        calls = copy.copy(self)
        calls._api_key = api_key
        return calls

    def deadline(self, timeout_seconds: float | None, *, extra_seconds: float = 0.0) -> Deadline:
        """The deadline of a call of fixed work; None takes the client's default."""
        timeout = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        return Deadline(None if timeout is None else timeout + extra_seconds)

    def operation_deadline(self, timeout_seconds: float | None) -> Deadline:
        """The deadline of an operation; None takes the client's default."""
        return Deadline(self._operation_timeout_seconds if timeout_seconds is None else timeout_seconds)

    async def unary(self, method: str, request: Message, deadline: Deadline, *, parent: Span | None = None) -> Any:
        """One attempt of a call. Raises KakeyaError."""
        span = self._start(method, request, parent)
        try:
            response = await self._transport.unary(
                method, request, timeout_seconds=deadline.remaining_seconds(), metadata=self._signed(span)
            )
        except BaseException as error:
            span.end(error)
            raise
        span.describe(request)
        span.describe(response)
        span.end()
        return response

    async def repeated(self, method: str, request: Message, timeout_seconds: float | None) -> Any:
        """A call of fixed work that is safe to repeat. Raises KakeyaError."""
        retry = Retry(self.deadline(timeout_seconds), max_attempts=self.max_attempts)
        return await repeat(lambda: self.unary(method, request, retry.deadline), retry)

    def stream(
        self, method: str, request: Message, deadline: Deadline, *, parent: Span | None = None
    ) -> "AsyncStreamCall":
        """Starts a call with a stream of responses."""
        span = self._start(method, request, parent)
        stream = self._transport.stream(
            method, request, timeout_seconds=deadline.remaining_seconds(), metadata=self._signed(span)
        )
        return AsyncStreamCall(stream, span)

    def watch(self, request: admin_pb2.WatchRequest) -> "AsyncStreamCall":
        """Starts the call that watches the runtime, of the operators' service."""
        span = self._start("Watch", request, None, service=_ADMIN_SERVICE)
        return AsyncStreamCall(self._transport.watch(request, metadata=self._signed(span)), span)

    def give_up(self, request_id: str) -> None:
        """Has the session closed, in a while, that a CreateSession without an answer may have opened."""
        request = runtime_pb2.CloseSessionRequest(request_id=request_id)
        retry = Retry(Deadline(_GIVE_UP_SECONDS), max_attempts=self.max_attempts)

        async def close() -> None:
            # Refused, or this client is closed by now: then its time to live ends it, and nobody is left to be told.
            with suppress(KakeyaError, RuntimeError):
                await repeat(lambda: self.unary("CloseSession", request, retry.deadline), retry)

        self._errands.start(close)

    async def close(self) -> None:
        """Cancels what is running and disconnects, after a moment for what was given up; then nothing happens."""
        if not self._closed:
            await self._errands.wait(_LAST_ERRANDS_SECONDS)
            self._closed = True
            await self._transport.close()

    def _signed(self, span: Span) -> Metadata:
        return _api_key.metadata(self._api_key) + span.metadata

    def _start(self, method: str, request: Message, parent: Span | None, *, service: str = _SERVICE) -> Span:
        if self._closed:
            raise RuntimeError("the client is closed")
        session_id = getattr(request, "session_id", "") or getattr(getattr(request, "session", None), "session_id", "")
        return self.tracer.start(f"{service}/{method}", "client", session_id=session_id, parent=parent)


class AsyncStreamCall:
    """A running call with a stream of responses, and its span, which ends when the stream does."""

    def __init__(self, stream: Stream, span: Span) -> None:
        self.span = span
        self._stream = stream

    async def read(self, within_seconds: float | None = None) -> Any:
        """The next response, None at the end. Raises KakeyaError; DeadlineExceeded where it does not come in time."""
        try:
            response = await self._stream.read(within_seconds)
        except BaseException as error:
            self.span.end(error)
            raise
        if response is None:
            self.span.end()
        return response

    async def header(self, key: str) -> str:
        """A value of the initial metadata, "" if it is not there. Does not wait once a response was read."""
        return await self._stream.header(key)

    def cancel(self, error: KakeyaError) -> None:
        """Tells the server to stop; nothing happens if the stream is at its end."""
        self._stream.cancel()
        self.span.end(error)


class AsyncTokens:
    """An iteration over a generation; dropping it, as `break` does, cancels the generation's call."""

    def __init__(self, generation: "AsyncGeneration") -> None:
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


async def repeat(attempt: Callable[[], Eventual[T]], retry: Retry) -> T:
    """Attempts until it succeeds or `retry` gives up."""
    while True:
        try:
            return await attempt()
        except KakeyaError as error:
            delay_seconds = retry.delay_seconds(error)
            if delay_seconds is None:
                raise
        await sleep(delay_seconds)
