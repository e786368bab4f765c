"""The spans of the SDK, behind a door that costs nothing while nobody asks for them.

OpenTelemetry is imported by `_otel` alone, and `_otel` only by `choose`. Spans are explicit: gRPC's
interceptors would replace a stream's call object, which then could not be cancelled any more.
"""

import sys
from typing import Literal, Protocol

from google.protobuf.message import Message

from kakeya.errors import MissingExtra

Metadata = tuple[tuple[str, str], ...]
Kind = Literal["client", "internal"]


class Span(Protocol):
    """One span."""

    @property
    def metadata(self) -> Metadata:
        """What carries the span to the called service (W3C trace context)."""
        ...

    def describe(self, message: Message) -> None:
        """Adds the lengths, bytes and counts of a request or response; never token ids."""
        ...

    def end(self, error: BaseException | None = None) -> None:
        """Ends the span, as failed if there is an error. Only the first call counts."""
        ...


class Tracer(Protocol):
    """Where spans come from."""

    def start(self, name: str, kind: Kind, *, session_id: str = "", parent: Span | None = None) -> Span:
        """Opens a span under `parent`, else under the application's current span.

        Args:
            name: of a client span, package.Service/Method.
            kind: client for a call, internal for what embraces calls.
            session_id: becomes gen_ai.conversation.id.
            parent: one of this tracer's.
        """
        ...


class _NoSpan:
    metadata: Metadata = ()

    def describe(self, message: Message) -> None:
        """Nothing is recorded."""

    def end(self, error: BaseException | None = None) -> None:
        """Nothing was begun."""


class _NoTracer:
    _span = _NoSpan()

    def start(self, name: str, kind: Kind, *, session_id: str = "", parent: Span | None = None) -> Span:
        return self._span


def choose(tracing: bool | None) -> Tracer:
    """The tracer of a client.

    Args:
        tracing: None for spans if the application has OpenTelemetry loaded.

    Raises:
        MissingExtra: `tracing` is True and OpenTelemetry is not installed.
    """
    if tracing is False or (tracing is None and "opentelemetry.trace" not in sys.modules):
        return _NoTracer()
    try:
        from kakeya._spans._otel import OtelTracer
    except ImportError as error:
        raise MissingExtra("tracing", "otel") from error
    return OtelTracer()
