"""A request whose worker is killed in the middle of its answer is one trace, with both workers in it."""

import os
import signal
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.http_stack import HttpStack, http_stack, start_worker
from tests.integration.open_http import ENDLESS, MODEL
from tests.integration.otlp_receiver import ReceivedSpan
from tests.integration.processes import LONG_SECONDS, wait_until

INTERNAL, SERVER, CLIENT = 1, 2, 3  # opentelemetry.proto.trace.v1.Span.SpanKind
HTTP, ROUTER, WORKER = "kakeya-http", "kakeya-router", "kakeya-worker"
CHAT = "/v1/chat/completions"
TURN, GENERATE, APPEND = (
    "kakeya.v1.RuntimeService/Turn",
    "kakeya.worker.v1.VerifierService/Generate",
    "kakeya.worker.v1.VerifierService/Append",
)
NUM_TOKENS = 400
BODY: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Tell me of the lighthouse at the end of the bay."}],
    "max_tokens": NUM_TOKENS,
    "logit_bias": ENDLESS,
    "seed": 2,
    "temperature": 0.5,
    "stream": True,
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpStack]:
    names = {"OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental/dup"}
    with http_stack(tmp_path_factory.mktemp("recovered"), **names) as made:
        start_worker(made.runtime)
        made.runtime.wait_for_workers(2)
        yield made


class Trace:
    """The spans of one trace."""

    def __init__(self, spans: list[ReceivedSpan]) -> None:
        self.spans = spans

    def all(self, service: str, name: str, kind: int = INTERNAL) -> list[ReceivedSpan]:
        """In the order in which they began."""
        found = [span for span in self.spans if (span.service, span.name, span.kind) == (service, name, kind)]
        return sorted(found, key=lambda span: span.span.start_time_unix_nano)

    def only(self, service: str, name: str, kind: int = INTERNAL) -> ReceivedSpan:
        (span,) = self.all(service, name, kind)
        return span

    def below(self, span: ReceivedSpan) -> set[str]:
        """Names of its children in its own process."""
        return {each.name for each in self.spans if each.parent_id == span.span_id and each.service == span.service}


@pytest.fixture(scope="module")
def recovered(stack: HttpStack) -> Trace:
    """Of a request whose worker was killed once it had told of its prefill, and the client had seen tokens."""
    trace_id = uuid.uuid4().hex
    headers = {"authorization": f"Bearer {stack.key}", "traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"}

    def spans() -> list[ReceivedSpan]:
        return [span for span in list(stack.receiver.spans) if span.trace_id == trace_id]

    num_events, killed = 0, False
    url = f"http://{stack.shim.address}{CHAT}"
    with httpx.stream("POST", url, json=BODY, headers=headers, timeout=LONG_SECONDS) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            num_events += line.startswith("data:")
            if num_events == 20 and not killed:
                killed = True
                wait_until(lambda: bool(Trace(spans()).all(WORKER, "prefill")), "the prefill of the first worker")
                # Each process sends its spans when it likes.
                wait_until(lambda: bool(Trace(spans()).all(ROUTER, APPEND, CLIENT)), "who has the session")
                _kill_holder(stack, Trace(spans()))
    assert killed
    wait_until(lambda: bool(Trace(spans()).all(HTTP, f"POST {CHAT}", SERVER)), "the span of the request")
    wait_until(lambda: bool(Trace(spans()).all(ROUTER, TURN, SERVER)), "the router's span of the turn")
    # The last to end of what each process says of it, so that all others are there.
    wait_until(lambda: bool(Trace(spans()).all(WORKER, GENERATE, SERVER)), "the answer of the second worker")
    return Trace(spans())


def _kill_holder(stack: HttpStack, trace: Trace) -> None:
    port = trace.only(ROUTER, APPEND, CLIENT).attributes["server.port"]
    holder = next(each for each in stack.runtime.workers if each.address.endswith(f":{port}"))
    os.kill(holder.process.pid, signal.SIGKILL)


def test_both_workers_are_in_the_trace_of_one_request(recovered: Trace) -> None:
    assert len({span.instance for span in recovered.spans if span.service == WORKER}) == 2
    request = recovered.only(HTTP, f"POST {CHAT}", SERVER)
    inference = recovered.only(HTTP, f"chat {MODEL}", CLIENT)
    asked, turn = recovered.only(HTTP, TURN, CLIENT), recovered.only(ROUTER, TURN, SERVER)
    chain = [request, inference, asked, turn]
    assert [span.parent_id for span in chain[1:]] == [span.span_id for span in chain[:-1]]
    assert not any(span.is_error for span in chain)
    assert {"placement", "journal", "recovery", APPEND, GENERATE} <= recovered.below(turn)


def test_recovery_links_the_lost_worker_and_the_new_one(recovered: Trace) -> None:
    lost, after = recovered.all(ROUTER, GENERATE, CLIENT)
    recovery = recovered.only(ROUTER, "recovery")
    assert (lost.is_error, after.is_error, recovery.is_error) == (True, False, False)
    assert recovery.links == after.links == (lost.span_id,)
    assert recovery.attributes["kakeya.left_worker_id"] == lost.attributes["kakeya.worker_id"]
    assert recovery.attributes["kakeya.worker_id"] == after.attributes["kakeya.worker_id"]
    assert lost.attributes["kakeya.worker_id"] != after.attributes["kakeya.worker_id"]
    assert int(str(lost.attributes["kakeya.epoch"])) < int(str(after.attributes["kakeya.epoch"]))
    assert lost.attributes["server.port"] != after.attributes["server.port"]
    assert {"placement", APPEND} <= recovered.below(recovery)
    placements = recovered.all(ROUTER, "placement")
    assert [span.attributes["kakeya.worker_id"] for span in placements] == [
        lost.attributes["kakeya.worker_id"],
        after.attributes["kakeya.worker_id"],
    ]
    (restore,) = [span for span in recovered.all(ROUTER, "restore") if span.parent_id == placements[1].span_id]
    assert restore.attributes["kakeya.epoch"] == after.attributes["kakeya.epoch"]


def test_workers_say_what_they_waited_for_and_did(recovered: Trace) -> None:
    served = recovered.only(WORKER, GENERATE, SERVER)  # the other one was killed with its span
    assert served.parent_id == recovered.all(ROUTER, GENERATE, CLIENT)[1].span_id
    assert recovered.below(served) == {"queue", "first_token", "decode"}
    decode, first = recovered.only(WORKER, "decode"), recovered.only(WORKER, "first_token")
    assert first.span.end_time_unix_nano == pytest.approx(decode.span.start_time_unix_nano, abs=1_000_000)
    assert 0 < int(str(decode.attributes["kakeya.generated"])) < NUM_TOKENS
    prefills = recovered.all(WORKER, "prefill")
    appended = [int(str(span.attributes["kakeya.appended"])) for span in prefills]
    assert len({span.instance for span in prefills}) == 2
    assert appended[0] == recovered.only(ROUTER, "journal").attributes["kakeya.appended"]
    assert sum(appended[1:]) > appended[0], "the history and what was generated of the answer"
    assert all(int(str(span.attributes["kakeya.chunks"])) >= 1 for span in prefills)


def test_the_turn_says_what_it_cost(recovered: Trace) -> None:
    turn = recovered.only(ROUTER, TURN, SERVER).attributes
    num_appended = int(str(turn["kakeya.appended"]))
    assert turn["kakeya.generated"] == NUM_TOKENS
    assert turn["kakeya.history_length"] == num_appended + NUM_TOKENS
    assert turn["kakeya.forgotten"] == int(str(turn["kakeya.history_length"])) - int(str(turn["kakeya.retained"]))
    assert int(str(turn["kakeya.kv_live_bytes"])) > 0


def test_the_inference_span_has_the_names_of_both_conventions(recovered: Trace) -> None:
    told = recovered.only(HTTP, f"chat {MODEL}", CLIENT).attributes
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.request.model"] == told["gen_ai.response.model"] == MODEL
    assert told["gen_ai.system"] == told["gen_ai.provider.name"] == "kakeya"
    assert told["gen_ai.response.finish_reasons"] == ("length",)
    assert (told["gen_ai.request.max_tokens"], told["gen_ai.request.temperature"]) == (NUM_TOKENS, 0.5)
    assert told["gen_ai.usage.output_tokens"] == NUM_TOKENS
    assert told["gen_ai.usage.input_tokens"] == recovered.only(ROUTER, TURN, SERVER).attributes["kakeya.appended"]
