"""The root span of a request, of which the SDK's calls are children.

The ASGI instrumentation of opentelemetry-contrib is not used: it puts the headers Host and User-Agent, the query and
the message and stack of an exception, which may quote a prompt, into the span's attributes; it names spans by raw
paths, of which strangers can make as many as they like; and it ends the span with the last byte of the answer, before
what the request still does, such as closing its session.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kakeya_http_shim.metrics import METHODS, route_template
from kakeya_shared.rpc.otlp import TRACES

_UNTRACED = frozenset({"/healthz", "/readyz", "/health", "/ping", "/metrics"})
"""Asked every few seconds by machines."""

_BAGGAGE = "baggage"
"""What strangers send under this name would go on to the runtime with every call."""

_tracer = trace.get_tracer("kakeya")


def with_request_span(app: ASGIApp) -> ASGIApp:
    """`app` in spans, or as it is where nobody wants traces."""
    return RequestSpan(app) if TRACES.is_wanted() else app


class RequestSpan:
    """Each request is a span, child of its client's (W3C traceparent), current in all that the app does for it.

    The attributes are OpenTelemetry's for HTTP servers, without anything that a client can choose freely.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _UNTRACED:
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in METHODS else "_OTHER"
        with _server_span(method, scope) as span:

            async def send_with_status(message: Message) -> None:
                if message["type"] == "http.response.start":
                    _tell_status(span, message["status"])
                await send(message)

            await self._app(scope, receive, send_with_status)


@contextmanager
def _server_span(method: str, scope: Scope) -> Iterator[Span]:
    """Named by its route once that is known, which is at the end."""
    name = "HTTP" if method == "_OTHER" else method
    attributes = {
        "http.request.method": method,
        "url.scheme": scope["scheme"],
        "network.protocol.version": scope["http_version"],
    }
    with _tracer.start_as_current_span(
        name,
        context=_parent(scope),
        kind=SpanKind.SERVER,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except (Exception, asyncio.CancelledError) as error:
            _tell_failure(span, type(error).__name__)
            raise
        finally:
            if route := route_template(scope):
                span.update_name(f"{name} {route}")
                span.set_attribute("http.route", route)


def _parent(scope: Scope) -> Context:
    fields = propagate.get_global_textmap().fields - {_BAGGAGE}
    headers: dict[str, list[str]] = {}
    for raw_name, value in scope["headers"]:
        name = raw_name.decode("latin-1")
        if name in fields:
            headers.setdefault(name, []).append(value.decode("latin-1"))
    return propagate.extract({name: ",".join(values) for name, values in headers.items()}, Context())


def _tell_status(span: Span, status: int) -> None:
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        _tell_failure(span, str(status))


def _tell_failure(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))
