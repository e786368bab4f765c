"""OpenTelemetry across the hops: W3C trace context in gRPC metadata, and the spans of what happens between them.

Spans are opened in the server boundary (`rpc_boundary`), in `client_span` and `part` here, and in the HTTP shim's;
`past` tells of what was only timed. The gRPC instrumentation of opentelemetry-contrib is not used: its asyncio client
interceptors replace a stream's call object, so it can no longer be cancelled, and leave the span of a cancelled call
open. Where a process exports none (`trace_export`), and its caller has sent no context, nothing is made.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import propagate, trace
from opentelemetry.trace import INVALID_SPAN, Link, Span, SpanContext, SpanKind, Status, StatusCode

from kakeya_shared.errors.tree import KakeyaError

Metadata = tuple[tuple[str, str], ...]
Value = str | int | float

BESIDE_REQUESTS = frozenset(
    {"/kakeya.worker.v1.RegistryService/Heartbeat", "/kakeya.worker.v1.VerifierService/Acknowledge"}
)
"""Calls that have no span: heartbeats, once a second from every worker, are part of no request; acknowledgements come
every few tokens."""

_STANDING = frozenset(
    {
        "/kakeya.worker.v1.RegistryService/Tunnel",
        "/kakeya.worker.v1.VerifierService/StreamAnswers",
        "/kakeya.admin.v1.AdminService/Watch",
    }
)
"""Calls that stand as long as a process or a viewer: no trace waits for their end. What comes of one is in the log."""

_tracer = trace.get_tracer("kakeya")


def rpc_attributes(method: str) -> dict[str, str]:
    """OpenTelemetry's RPC attributes of "/package.Service/Method"."""
    service, _, name = method.removeprefix("/").rpartition("/")
    return {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}


@contextmanager
def server_span(method: str, metadata: Metadata) -> Iterator[Span]:
    """The span of one served call, child of the caller's, current inside; none where there would be too many."""
    if method in BESIDE_REQUESTS or method in _STANDING:
        yield INVALID_SPAN
        return
    texts = {key: value for key, value in metadata if isinstance(value, str)}
    if _exports_nothing() and texts.keys().isdisjoint(propagate.get_global_textmap().fields):
        yield INVALID_SPAN
        return
    with _tracer.start_as_current_span(
        method.removeprefix("/"),
        context=propagate.extract(texts),
        kind=SpanKind.SERVER,
        attributes=rpc_attributes(method),
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield span


@contextmanager
def client_span(method: str, address: str = "", links: Sequence[SpanContext] = ()) -> Iterator[Metadata]:
    """The span of one outgoing call, current inside; yields the metadata that carries it.

    Args:
        address: HOST:PORT that is called, or another that gRPC knows.
        links: spans that it follows on, beside its parent.
    """
    if _exports_nothing() and trace.get_current_span() is INVALID_SPAN:
        yield ()
        return
    with _tracer.start_as_current_span(
        method.removeprefix("/"),
        kind=SpanKind.CLIENT,
        attributes={**rpc_attributes(method), **_server_attributes(address)},
        links=_links(links),
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        with _failing(span):
            yield tuple(carrier.items())


@contextmanager
def part(name: str, links: Sequence[SpanContext] = (), **attributes: Value) -> Iterator[Span]:
    """The span of a part of what this process does, for a call or by itself, current inside.

    Args:
        name: one of few words, such as `placement`.
        links: spans that it follows on.
        attributes: as of `annotate`.
    """
    if _exports_nothing():
        yield INVALID_SPAN
        return
    with (
        _tracer.start_as_current_span(
            name,
            attributes=_named(attributes),
            links=_links(links),
            record_exception=False,
            set_status_on_exception=False,
        ) as span,
        _failing(span),
    ):
        yield span


def past(name: str, started: float | None, ended: float | None, **attributes: Value) -> None:
    """A part that is over, from one time to another.

    Args:
        started, ended: in seconds on the clock of `time.perf_counter`; None: it has not come to that, so there is none.
        attributes: as of `annotate`.
    """
    if started is None or ended is None or not trace.get_current_span().is_recording():
        return
    now, now_ns = time.perf_counter(), time.time_ns()
    start_ns, end_ns = (now_ns - round((now - at) * 1e9) for at in (started, ended))
    _tracer.start_span(name, start_time=start_ns, attributes=_named(attributes)).end(end_ns)


def here() -> SpanContext:
    """Of the current span, for those that follow on it."""
    return trace.get_current_span().get_span_context()


def annotate(**attributes: Value) -> None:
    """Adds our attributes to the current span: `kv_live_bytes=1` becomes kakeya.kv_live_bytes."""
    span = trace.get_current_span()
    if span.is_recording():
        span.set_attributes(_named(attributes))


def annotate_session(session_id: str) -> None:
    """Marks the current span with its conversation (OpenTelemetry's GenAI conventions)."""
    trace.get_current_span().set_attribute("gen_ai.conversation.id", session_id)


def fail(span: Span, description: str) -> None:
    """Marks a span as failed."""
    span.set_status(Status(StatusCode.ERROR, description))


@contextmanager
def _failing(span: Span) -> Iterator[None]:
    """Says of what leaves it why the span failed: its reason, never its message, which may quote what was said."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, GeneratorExit):  # left by who had enough
            fail(span, error.reason if isinstance(error, KakeyaError) else type(error).__name__)
        raise


def _exports_nothing() -> bool:
    """Spans of this process would go nowhere."""
    return isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _links(contexts: Sequence[SpanContext]) -> list[Link]:
    return [Link(context) for context in contexts if context.is_valid]


def _named(attributes: dict[str, Value]) -> dict[str, Value]:
    return {f"kakeya.{name}": value for name, value in attributes.items()}


def _server_attributes(address: str) -> dict[str, Value]:
    host, _, port = address.rpartition(":")
    return {"server.address": host.strip("[]"), "server.port": int(port)} if host and port.isdecimal() else {}
