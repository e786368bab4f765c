"""The edge of every served call: its span, its log context, and errors as google.rpc statuses.

Services raise the tree of `errors`; nothing else leaves a process except INTERNAL with a trace id.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import grpc
import structlog
from opentelemetry import trace
from opentelemetry.trace import Span

from kakeya_shared import error_details, tracing
from kakeya_shared.errors import Internal, KakeyaError
from kakeya_shared.request_parsing import Parse, parse, with_parsed_requests

_log = structlog.get_logger()

# Generic in the stubs only, hence the quotes.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
UnaryBehaviour = Callable[[Any, Context], Awaitable[Any]]
StreamBehaviour = Callable[[Any, Context], AsyncIterator[Any]]
Guard = Callable[[str, tracing.Metadata], Awaitable[None]]
"""Told the method and the metadata of each call, in the call's own task, before its handler; raises to refuse it."""


class RpcBoundary(grpc.aio.ServerInterceptor):
    """Wraps the handlers of Kakeya's services; of health and reflection it only parses the requests.

    Requests are parsed here, since gRPC answers INTERNAL to what is no protobuf.

    Args:
        guard: None lets every call in.
    """

    def __init__(self, guard: Guard | None = None) -> None:
        self._guard = guard

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None:
            return None
        if not method.startswith("/kakeya."):
            return with_parsed_requests(handler)
        served = Served(method, handler.request_deserializer, self._guard)  # type: ignore[arg-type]  # generated handlers have one
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                _stream(served, handler.unary_stream),  # type: ignore[arg-type]  # asyncio handlers are not typed
                response_serializer=handler.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            _unary(served, handler.unary_unary),  # type: ignore[arg-type]  # as above
            response_serializer=handler.response_serializer,
        )


@dataclass(frozen=True)
class Served:
    """What comes before the handler of a method."""

    method: str
    parser: Parse
    guard: Guard | None

    async def request(self, content: bytes, metadata: tracing.Metadata) -> Any:
        """The request, of a caller who may call. Raises what the guard raises, and InvalidField."""
        if self.guard is not None:
            await self.guard(self.method, metadata)
        return parse(self.parser, content)


def _unary(served: Served, behaviour: UnaryBehaviour) -> UnaryBehaviour:
    async def call(content: bytes, context: Context) -> Any:
        metadata = _metadata(context)
        with tracing.server_span(served.method, metadata) as span:
            try:
                return await behaviour(await served.request(content, metadata), context)
            except (Exception, asyncio.CancelledError) as error:
                await _abort(span, context, error)

    return call


def _stream(served: Served, behaviour: StreamBehaviour) -> UnaryBehaviour:
    # A coroutine that writes, not a generator that yields: gRPC may drop a generator without closing it, and
    # then it is finalized in another task, too late. Here a vanished client is an exception in this frame.
    async def call(content: bytes, context: Context) -> None:
        metadata = _metadata(context)
        with tracing.server_span(served.method, metadata) as span:
            try:
                request = await served.request(content, metadata)
                async with aclosing(behaviour(request, context)) as responses:  # type: ignore[type-var]
                    async for response in responses:
                        await _write(context, response)
            except (Exception, asyncio.CancelledError) as error:
                await _abort(span, context, error)

    return call


async def _write(context: Context, response: Any) -> None:
    try:
        await context.write(response)
    except grpc.aio.InternalError as error:
        # So gRPC says at times that the client went while it had left too much unread to write more.
        raise asyncio.CancelledError from error


def _metadata(context: Context) -> tracing.Metadata:
    return tuple(context.invocation_metadata() or ())  # type: ignore[arg-type]  # untyped in grpc


async def _abort(span: Span, context: Context, error: BaseException) -> NoReturn:
    if isinstance(error, asyncio.CancelledError | grpc.aio.AbortError):
        tracing.fail(span, type(error).__name__)
        raise error
    if not isinstance(error, KakeyaError) or (isinstance(error, Internal) and "trace_id" not in error.metadata):
        error = _unforeseen(error)
    span.set_attribute("rpc.grpc.status_code", error.status.value[0])
    tracing.fail(span, error.reason)
    await context.abort(error.status, error.message, ((error_details.DETAILS_KEY, error_details.encode(error)),))


def _unforeseen(error: BaseException) -> Internal:
    span_context = trace.get_current_span().get_span_context()
    trace_id = trace.format_trace_id(span_context.trace_id) if span_context.is_valid else secrets.token_hex(16)
    _log.error("unforeseen error", error_trace_id=trace_id, exc_info=error)
    return Internal(f"internal error; trace id {trace_id}", metadata={"trace_id": trace_id})
