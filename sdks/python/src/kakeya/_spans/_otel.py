"""OpenTelemetry behind the SDK's `Tracer`; imported only when a program asks for spans."""

from google.protobuf.message import Message
from grpc import StatusCode as GrpcStatusCode
from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from kakeya._spans._tracing import Kind, Metadata, Span
from kakeya.errors import KakeyaError

_ATTRIBUTES = {
    "session_id": "gen_ai.conversation.id",
    "history_length": "kakeya.history_length",
    "final_history_length": "kakeya.history_length",
    "kv_live_bytes": "kakeya.kv_live_bytes",
    "generated_token_count": "kakeya.num_generated_tokens",
}
"""Fields of the contract's messages and the span attributes they become."""

_tracer = trace.get_tracer("kakeya")
_KINDS = {"client": SpanKind.CLIENT, "internal": SpanKind.INTERNAL}


class OtelSpan:
    """A span that is never the current one: it may outlive the frame, task or thread that opened it."""

    def __init__(self, span: trace.Span, is_call: bool) -> None:
        self.context = trace.set_span_in_context(span)
        self._span = span
        self._is_call = is_call
        self._num_evicted = 0

    @property
    def metadata(self) -> Metadata:
        carrier: dict[str, str] = {}
        propagate.inject(carrier, self.context)
        return tuple(carrier.items())

    def describe(self, message: Message) -> None:
        if not self._span.is_recording():
            return
        for field, attribute in _ATTRIBUTES.items():
            if hasattr(message, field):
                self._span.set_attribute(attribute, getattr(message, field))
        if hasattr(message, "evicted_token_count"):  # a Turn says it twice: of its append, and of what it generates
            self._num_evicted += message.evicted_token_count
            self._span.set_attribute("kakeya.num_evicted_tokens", self._num_evicted)
        if hasattr(message, "token_ids"):
            self._span.set_attribute("kakeya.num_new_tokens", len(message.token_ids))

    def end(self, error: BaseException | None = None) -> None:
        if not self._span.is_recording():
            return
        if self._is_call:
            self._span.set_attribute("rpc.grpc.status_code", _status_code(error))
        if error is not None:
            self._span.set_status(Status(StatusCode.ERROR, getattr(error, "reason", "") or type(error).__name__))
        self._span.end()


class OtelTracer:
    """Spans of the application's tracer provider."""

    def start(self, name: str, kind: Kind, *, session_id: str = "", parent: Span | None = None) -> OtelSpan:
        attributes: dict[str, str] = {}
        if kind == "client":
            service, _, method = name.rpartition("/")
            attributes |= {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}
        if session_id:
            attributes["gen_ai.conversation.id"] = session_id
        context = parent.context if isinstance(parent, OtelSpan) else None
        span = _tracer.start_span(name, context=context, kind=_KINDS[kind], attributes=attributes)
        return OtelSpan(span, is_call=kind == "client")


def _status_code(error: BaseException | None) -> int:
    if error is None:
        return 0
    # Whatever is no error of the SDK's tore the call down from this side: a cancelled task, Ctrl-C.
    status = error.status if isinstance(error, KakeyaError) else GrpcStatusCode.CANCELLED
    return int(status.value[0])
