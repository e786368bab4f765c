"""The edge of every served call: its span, its log context, and errors as google.rpc statuses.

Services raise the tree of `errors`; nothing else leaves a process except INTERNAL with a trace id.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NoReturn, TypeAlias

import grpc
import structlog
from opentelemetry import trace
from opentelemetry.trace import Span

from kakeya_shared import error_details, tracing
from kakeya_shared.errors import Internal, KakeyaError

_log = structlog.get_logger()

# Generic in the stubs only, hence the quotes.
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
UnaryBehaviour = Callable[[Any, Context], Awaitable[Any]]
StreamBehaviour = Callable[[Any, Context], AsyncIterator[Any]]
Guard = Callable[[str, tracing.Metadata], Awaitable[None]]
"""Told the method and the metadata of each call, in the call's own task, before its handler; raises to refuse it."""


class RpcBoundary(grpc.aio.ServerInterceptor):
    """Wraps the handlers of Kakeya's services; health and reflection pass untouched.

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
        if handler is None or not method.startswith("/kakeya."):
            return handler
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                _stream(method, handler.unary_stream, self._guard),  # type: ignore[arg-type]  # asyncio handlers are not typed
                handler.request_deserializer,
                handler.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            _unary(method, handler.unary_unary, self._guard),  # type: ignore[arg-type]  # as above
            handler.request_deserializer,
            handler.response_serializer,
        )


def _unary(method: str, behaviour: UnaryBehaviour, guard: Guard | None) -> UnaryBehaviour:
    async def call(request: Any, context: Context) -> Any:
        metadata = _metadata(context)
        with tracing.server_span(method, metadata) as span:
            try:
                if guard is not None:
                    await guard(method, metadata)
                return await behaviour(request, context)
            except (Exception, asyncio.CancelledError) as error:
                await _abort(span, context, error)

    return call


def _stream(method: str, behaviour: StreamBehaviour, guard: Guard | None) -> UnaryBehaviour:
    # A coroutine that writes, not a generator that yields: gRPC may drop a generator without closing it, and
    # then it is finalized in another task, too late. Here a vanished client is an exception in this frame.
    async def call(request: Any, context: Context) -> None:
        metadata = _metadata(context)
        with tracing.server_span(method, metadata) as span:
            try:
                if guard is not None:
                    await guard(method, metadata)
                async with aclosing(behaviour(request, context)) as responses:  # type: ignore[type-var]
                    async for response in responses:
                        await context.write(response)
            except (Exception, asyncio.CancelledError) as error:
                await _abort(span, context, error)

    return call


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
