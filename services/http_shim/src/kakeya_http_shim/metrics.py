"""What the server counts and measures, for Prometheus."""

import asyncio
import time

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kakeya_shared.metrics.meters import Buckets, Label, Meters

_MACHINES_ROUTES = frozenset({"/healthz", "/readyz", "/health", "/ping", "/metrics"})
"""Asked every few seconds by machines."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""All others are as good as one: a stranger can make up as many as he likes."""

_DURATION_SECONDS = Buckets(
    (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
    "those that OpenTelemetry's GenAI conventions advise",
)
_FIRST_TOKEN_SECONDS = Buckets(
    (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    "those that OpenTelemetry's GenAI conventions advise",
)
_TOKEN_SECONDS = Buckets(
    (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
    "those that OpenTelemetry's GenAI conventions advise",
)

_log = structlog.get_logger()


class Metrics:
    """What the shim counts and measures.

    Labels have few values each: routes are templates, and there are none of models, sessions or clients.
    """

    def __init__(self, meters: Meters | None = None) -> None:
        self._meters = meters = meters or Meters()
        self._count_requests(meters)
        self._count_tokens(meters)
        self.request_duration = meters.histogram(
            "kakeya_http_request_duration_seconds",
            "From the head of a request to the end of its answer.",
            "route",
            buckets=_DURATION_SECONDS,
        )
        self.time_to_first_token = meters.histogram(
            "kakeya_http_time_to_first_token_seconds",
            "From the start of work on a request to its first token.",
            buckets=_FIRST_TOKEN_SECONDS,
        )
        self.time_per_output_token = meters.histogram(
            "kakeya_http_time_per_output_token_seconds",
            "Of an answer's tokens but the first, on average, its end included.",
            buckets=_TOKEN_SECONDS,
        )

    def _count_requests(self, meters: Meters) -> None:
        self.requests = meters.counter(
            "kakeya_http_requests_total", "Requests that have ended.", "route", "method", "status"
        )
        self.rejected_requests = meters.counter(
            "kakeya_http_rejected_requests_total",
            "Requests that got no place.",
            Label("reason", ("busy", "queue_full", "queue_timeout")),
        )
        self.disconnected_requests = meters.counter(
            "kakeya_http_disconnected_requests_total", "Requests whose client left before the end of its answer."
        )
        self.in_flight_requests = meters.gauge("kakeya_http_in_flight_requests", "Requests that are worked on.")
        self.waiting_requests = meters.gauge("kakeya_http_waiting_requests", "Requests that wait for a place.")

    def _count_tokens(self, meters: Meters) -> None:
        self.prompt_tokens = meters.counter(
            "kakeya_http_prompt_tokens_total", "Tokens of prompts that were answered.", unit="tokens"
        )
        self.completion_tokens = meters.counter(
            "kakeya_http_completion_tokens_total", "Tokens of answers that came to their end.", unit="tokens"
        )
        self.sessions = meters.counter(
            "kakeya_http_sessions_total",
            "Answers of chats, by what became of their session: continued, forked or new.",
            Label("state", ("continued", "forked", "new")),
        )
        self.appended_tokens = meters.counter(
            "kakeya_http_appended_tokens_total", "Tokens that chats have added to their sessions.", unit="tokens"
        )
        self.reused_tokens = meters.counter(
            "kakeya_http_reused_tokens_total", "Tokens of chats that their sessions had before.", unit="tokens"
        )
        self.failed_tags = meters.counter(
            "kakeya_http_failed_tags_total",
            "Places of conversations that could not be named, so that they are not found.",
            Label("place", ("head", "answer_start", "answer_end")),
        )

    def count_session(self, state: str, num_appended: int, num_reused: int) -> None:
        """One of a chat."""
        self.sessions.labels(state).inc()
        self.appended_tokens.inc(num_appended)
        self.reused_tokens.inc(num_reused)

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """All of it in the form that a header `Accept` asks for: the content and its type."""
        return self._meters.exposition(accept)


class CountRequests:
    """Counts requests and how long they take, by route, method and status, and logs a line of each.

    The status is "disconnected" where the client had left before one was sent.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        course = _Course(receive, send)
        began = time.perf_counter()
        try:
            await self._app(scope, course.receive, course.send)
        except asyncio.CancelledError:
            course.status = course.status or "503"  # what a request gets that is cut at the end of the server
            raise
        finally:
            self._count(scope, course, time.perf_counter() - began)

    def _count(self, scope: Scope, course: "_Course", seconds: float) -> None:
        route = route_template(scope) or "unknown"
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._metrics.requests.labels(route, method, course.status or "500").inc()
        self._metrics.request_duration.labels(route).observe(seconds)
        if course.is_abandoned:
            self._metrics.disconnected_requests.inc()
        log = _log.debug if route in _MACHINES_ROUTES else _log.info
        told = {"route": route, "method": method, "status": course.status or "500", "seconds": round(seconds, 4)}
        log("request", **told, **scope.get("state", {}).get("facts", {}))


class _Course:
    """How far an answer came, and whether its client stayed."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.status = ""
        self.is_abandoned = False
        self._is_complete = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect" and not self._is_complete:
            self.is_abandoned = True
            self.status = self.status or "disconnected"
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = self.status or str(message["status"])
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._is_complete = True


def route_template(scope: Scope) -> str:
    """The path of the route that was taken, with the names of its parameters; "" where there was none."""
    path = getattr(scope.get("route"), "path", "")
    return path if isinstance(path, str) else ""
