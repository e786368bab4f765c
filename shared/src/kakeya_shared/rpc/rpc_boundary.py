"""The edge of every served call: its span, its log context, and errors as google.rpc statuses.

Services raise the tree of `errors`; nothing else leaves a process except INTERNAL with a trace id.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias
from weakref import WeakKeyDictionary

import grpc
import structlog
from google.protobuf.message import DecodeError
from opentelemetry import trace
from opentelemetry.trace import Span

from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import Internal, InvalidField, KakeyaError
from kakeya_shared.metrics.meters import Meters
from kakeya_shared.rpc import tracing
from kakeya_shared.rpc.other_services import with_parsed_requests
from kakeya_shared.rpc.served_calls import CallMeters, ServedCall

_log = structlog.get_logger()

# Generic in the stubs only, hence the quotes.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
Parse = Callable[[bytes], Any]
UnaryBehaviour = Callable[[Any, Context], Awaitable[Any]]
"""Of a call with a stream of requests too; it then iterates over them."""
StreamBehaviour = Callable[[Any, Context], AsyncIterator[Any]]
Guard = Callable[[str, tracing.Metadata], Awaitable[Mapping[str, str]]]
"""Told the method and the metadata of each call, in the call's own task, before its request is received; raises to
refuse it. What it answers goes into the call's span (`tracing.annotate`)."""


_CANCELLED = grpc.StatusCode.CANCELLED.name


class RpcBoundary(grpc.aio.ServerInterceptor):
    """Wraps the handlers of Kakeya's services; of health and reflection it only parses the requests.

    Requests are parsed here, since gRPC answers INTERNAL to what is no protobuf. Of a caller who is refused none is
    received: strangers could fill the memory with messages that never end.

    Args:
        guard: None lets every call in.
        meters: of the calls; None counts none.
    """

    def __init__(self, guard: Guard | None = None, meters: CallMeters | None = None) -> None:
        self._guard = guard or _let_in
        self._meters = meters or CallMeters(Meters(is_on=False), "kakeya")

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None:
            return None
        _boundary.set(self)
        if not method.startswith("/kakeya."):
            return with_parsed_requests(handler, _parse)
        metadata: tracing.Metadata = handler_call_details.invocation_metadata or ()  # type: ignore[assignment]  # what is read is text
        try:
            caller = await self._guard(method, metadata)
        except Exception as error:
            return _refusal(self._meters, method, metadata, error)
        served = Served(self._meters, method, metadata, handler.request_deserializer, caller)  # type: ignore[arg-type]  # generated handlers have one
        if handler.request_streaming and handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(
                _stream(served, handler.stream_stream, _each_parsed),  # type: ignore[arg-type]  # as above
                response_serializer=handler.response_serializer,
            )
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                _stream(served, handler.unary_stream, _parse),  # type: ignore[arg-type]  # asyncio handlers are not typed
                response_serializer=handler.response_serializer,
            )
        if handler.request_streaming:
            return grpc.stream_unary_rpc_method_handler(
                _unary_of_stream(served, handler.stream_unary),  # type: ignore[arg-type]  # as above
                response_serializer=handler.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            _unary(served, handler.unary_unary),  # type: ignore[arg-type]  # as above
            response_serializer=handler.response_serializer,
        )


_boundary: ContextVar[RpcBoundary] = ContextVar("kakeya_rpc_boundary")


async def carry(
    method: str, metadata: tracing.Metadata, behaviour: StreamBehaviour, request: Any, context: Any
) -> None:
    """Serves a call that has come in a message of the one that is served here: let in, counted and traced as any.

    Args:
        context: of which `write` and `abort` are called. What `abort` raises leaves this, as CancelledError does.
    """
    boundary = _boundary.get()
    try:
        caller = await boundary._guard(method, metadata)
    except Exception as error:
        call = _refused(boundary._meters, method, metadata, error)
    else:
        served = Served(boundary._meters, method, metadata, _as_it_is, caller)
        call = _stream(served, behaviour, _parse)
    await call(request, context)


@dataclass(frozen=True)
class Course:
    """A call that runs: its span, and how it is counted."""

    span: Span
    call: ServedCall

    def fails(self, reason: str) -> None:
        tracing.fail(self.span, reason)
        self.call.reason = reason


@contextmanager
def _course(meters: CallMeters, method: str, metadata: tracing.Metadata) -> Iterator[Course]:
    with tracing.server_span(method, metadata) as span, meters.counted(method) as call:
        yield Course(span, call)


@dataclass(frozen=True)
class Served:
    """A call that was let in, how to read its request, and what the guard knows of its caller."""

    meters: CallMeters
    method: str
    metadata: tracing.Metadata
    parser: Parse
    caller: Mapping[str, str]

    @contextmanager
    def course(self) -> Iterator[Course]:
        with _course(self.meters, self.method, self.metadata) as course:
            tracing.annotate(**self.caller)
            yield course


# By the task that serves a call. The message of a cancellation would not do: gRPC's client raises another one.
_told: "WeakKeyDictionary[asyncio.Task[Any], KakeyaError]" = WeakKeyDictionary()


def cancel(task: "asyncio.Task[Any]", why: KakeyaError) -> None:
    """Cancels the task of a call that is served here; its client is told why."""
    _told[task] = why
    task.cancel(why)


async def _let_in(_method: str, _metadata: tracing.Metadata) -> Mapping[str, str]:
    """The guard of a server that asks nobody for anything."""
    return {}


def _refusal(meters: CallMeters, method: str, metadata: tracing.Metadata, error: Exception) -> Handler:
    """A handler that says no. As one of streams it does not receive anything first."""
    return grpc.stream_stream_rpc_method_handler(_refused(meters, method, metadata, error))


def _refused(meters: CallMeters, method: str, metadata: tracing.Metadata, error: Exception) -> UnaryBehaviour:
    async def call(_contents: object, context: Context) -> None:
        with _course(meters, method, metadata) as course:
            await _abort(course, context, error)

    return call


def _unary(served: Served, behaviour: UnaryBehaviour) -> UnaryBehaviour:
    async def call(content: bytes, context: Context) -> Any:
        with served.course() as course:
            try:
                return await behaviour(_parse(served.parser, content), context)
            except (Exception, asyncio.CancelledError) as error:
                await _abort(course, context, error)

    return call


def _unary_of_stream(served: Served, behaviour: UnaryBehaviour) -> UnaryBehaviour:
    async def call(contents: AsyncIterator[bytes], context: Context) -> Any:
        with served.course() as course:
            try:
                return await behaviour(_each_parsed(served.parser, contents), context)
            except (Exception, asyncio.CancelledError) as error:
                await _abort(course, context, error)

    return call


def _stream(served: Served, behaviour: StreamBehaviour, parse: Callable[[Parse, Any], Any]) -> UnaryBehaviour:
    # A coroutine that writes, not a generator that yields: gRPC may drop a generator without closing it, and
    # then it is finalized in another task, too late. Here a vanished client is an exception in this frame.
    async def call(content: Any, context: Context) -> None:
        with served.course() as course:
            try:
                request = parse(served.parser, content)
                # A streaming behaviour is an async generator; its protocol only says that it can be iterated.
                async with aclosing(behaviour(request, context)) as responses:  # type: ignore[type-var]
                    async for response in responses:
                        await _write(context, response)
                        course.call.num_responses += 1
            except (Exception, asyncio.CancelledError) as error:
                await _abort(course, context, error)

    return call


async def _write(context: Context, response: Any) -> None:
    try:
        await context.write(response)
    except grpc.aio.InternalError as error:
        # So gRPC says at times that the client went while it had left too much unread to write more.
        raise asyncio.CancelledError from error


async def _abort(course: Course, context: Context, error: BaseException) -> NoReturn:
    error = why_cancelled(error) or error
    if isinstance(error, asyncio.CancelledError | grpc.aio.AbortError):
        course.fails(_CANCELLED)
        raise error
    if not isinstance(error, KakeyaError) or (isinstance(error, Internal) and "trace_id" not in error.metadata):
        error = _unforeseen(error)
    course.span.set_attribute("rpc.grpc.status_code", error.status.value[0])
    course.fails(error.reason)
    await context.abort(error.status, error.message, ((error_details.DETAILS_KEY, error_details.encode(error)),))


def why_cancelled(error: BaseException | None) -> KakeyaError | None:
    """What the client is to be told of a call that this process has cancelled; asked in its task."""
    task = asyncio.current_task()
    is_cancelled = isinstance(error, asyncio.CancelledError | GeneratorExit)
    return _told.get(task) if is_cancelled and task is not None else None


def _unforeseen(error: BaseException) -> Internal:
    span_context = trace.get_current_span().get_span_context()
    trace_id = trace.format_trace_id(span_context.trace_id) if span_context.is_valid else secrets.token_hex(16)
    _log.error("unforeseen error", error_trace_id=trace_id, exc_info=error)
    return Internal(f"internal error; trace id {trace_id}", metadata={"trace_id": trace_id})


def _as_it_is(content: Any) -> Any:
    """The parser of what came as a message."""
    return content


def _parse(parser: Parse, content: bytes) -> Any:
    """The message. Raises InvalidField."""
    try:
        return parser(content)
    except DecodeError as error:
        message = "the request is not a message of this method in protobuf"
        raise InvalidField(message, metadata={"field": "request"}) from error


async def _each_parsed(parser: Parse, contents: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    """The messages of a stream. Raises InvalidField."""
    async for content in contents:
        yield _parse(parser, content)
