"""What the runtime's failures are to a client of this API."""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext
from starlette.types import Message

import kakeya
from kakeya_http_shim import error_shapes
from kakeya_http_shim.answers.reply import Reply
from kakeya_http_shim.command import main
from kakeya_http_shim.metrics import Metrics
from kakeya_http_shim.problems import ApiError, from_kakeya
from kakeya_http_shim.routes.admission import Admission
from kakeya_http_shim.routes.exchange import Exchange, House
from kakeya_stubs.v1 import runtime_pb2 as pb
from tests.unit.http_shim.shim import HELLO, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails, fails_plainly


@pytest.mark.parametrize(
    ("method", "reason", "metadata", "status", "code", "param"),
    [
        ("CreateSession", "NO_CAPACITY", {}, 429, "rate_limit_exceeded", None),
        ("CreateSession", "QUEUE_FULL", {}, 429, "rate_limit_exceeded", None),
        ("CreateSession", "QUEUE_TIMED_OUT", {}, 429, "rate_limit_exceeded", None),
        ("CreateSession", "TOO_MANY_CALLS", {}, 429, "rate_limit_exceeded", None),
        ("CreateSession", "QUOTA_EXCEEDED", {"quota": "sessions"}, 429, "quota_exceeded", None),
        ("AppendTokens", "SNAPSHOT_STORE_UNAVAILABLE", {}, 503, "snapshot_store_unavailable", None),
        ("CreateSession", "NO_WORKER", {}, 503, "no_worker", None),
        ("CreateSession", "INVALID_FIELD", {"field": "pin"}, 400, "context_length_exceeded", "messages"),
        ("CreateSession", "INVALID_FIELD", {"field": "window"}, 400, "invalid_value", "window"),
        ("CreateSession", "UNAUTHENTICATED", {}, 401, "invalid_api_key", None),
        ("CreateSession", "PERMISSION_DENIED", {}, 403, "permission_denied", None),
        ("CreateSession", "DEADLINE_EXCEEDED", {}, 503, "timeout", None),
        ("CreateSession", "DRAINING", {}, 503, "draining", None),
        ("CreateSession", "STORE_UNAVAILABLE", {}, 503, "store_unavailable", None),
        ("AppendTokens", "HISTORY_FULL", {"room": "5"}, 400, "context_length_exceeded", "messages"),
        ("AppendTokens", "APPEND_TOO_LONG", {}, 500, "internal_error", None),
        ("AppendTokens", "TOKEN_OUT_OF_VOCABULARY", {}, 400, "invalid_value", None),
        ("AppendTokens", "SESSION_NOT_FOUND", {}, 503, "session_not_found", None),
        ("AppendTokens", "WORKER_LOST", {}, 503, "worker_lost", None),
        ("Generate", "INVALID_FIELD", {"field": "max_tokens"}, 400, "invalid_value", "max_tokens"),
        ("Generate", "SESSION_CLOSED", {}, 503, "session_closed", None),
        ("Generate", "INVARIANT_VIOLATED", {}, 500, "internal_error", None),
        ("Generate", "OPERATION_RUNNING", {}, 503, "operation_running", None),
        ("Generate", "BOUNDARY_NOT_REACHABLE", {}, 503, "boundary_not_reachable", None),
        ("Generate", "SNAPSHOT_REFUSED", {}, 500, "internal_error", None),
        ("Generate", "INTERNAL", {"trace_id": "cafe"}, 500, "internal_error", None),
    ],
)
async def test_statuses(
    shim: Shim, method: str, reason: str, metadata: dict[str, str], status: int, code: str, param: str | None
) -> None:
    for _ in range(5):  # what is safe to repeat is repeated
        shim.runtime.before[method].append(fails(reason, retry_after_seconds=None, **metadata))
    response = await shim.chat()
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert (error["code"], error["param"]) == (code, param)
    assert error["message"]
    assert ("retry-after" in response.headers) == (status in (429, 503))
    assert ("www-authenticate" in response.headers) == (status == 401)
    shim.runtime.before[method].clear()


async def test_a_completion_that_does_not_fit_blames_its_prompt(shim: Shim) -> None:
    shim.runtime.before["AppendTokens"].append(fails("HISTORY_FULL"))
    error = (await shim.complete()).json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")


async def test_the_runtimes_retry_delay_is_passed_on(shim: Shim) -> None:
    shim.runtime.before["CreateSession"].append(fails("NO_CAPACITY", retry_after_seconds=6.2))
    assert (await shim.chat()).headers["retry-after"] == "7"


async def test_an_internal_error_says_its_trace_and_nothing_else(shim: Shim) -> None:
    shim.runtime.before["CreateSession"].append(fails("INTERNAL", trace_id="cafe"))
    assert (await shim.chat()).json()["error"]["message"] == "an unforeseen error (trace cafe)"


async def test_a_failure_that_the_runtime_does_not_explain(shim: Shim) -> None:
    shim.runtime.before["CreateSession"].append(fails_plainly(grpc.StatusCode.UNKNOWN))
    response = await shim.chat()
    assert (response.status_code, response.json()["error"]["type"]) == (500, "server_error")


async def test_a_failure_of_this_server(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr("kakeya_http_shim.routes.prompts.for_template", broken)
    response = await shim.chat()
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal_error"
    assert "secret" not in response.text


async def test_a_stop_of_the_runtimes_is_no_end(shim: Shim) -> None:
    shim.runtime.breaks_off = True
    response = await shim.chat(max_tokens=2)
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "server_error"


async def test_an_end_that_the_runtime_made(shim: Shim) -> None:
    done = pb.GenerateDone(stop_reason=pb.STOP_REASON_CANCELLED)
    shim.runtime.unusual_responses.append(pb.GenerateResponse(done=done))
    response = await shim.chat()
    assert (response.status_code, response.json()["error"]["code"]) == (503, "stopped")


async def test_a_tokenizer_without_a_chat_template(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    tiny_tokenizer.save(tmp_path, template=False)
    async with serving_shim(runtime, tmp_path) as shim:
        response = await shim.chat()
        assert (response.status_code, response.json()["error"]["param"]) == (400, "messages")
        assert "no chat template" in response.json()["error"]["message"]
        assert (await shim.complete(max_tokens=1)).status_code == 200


async def test_an_unforeseen_failure_says_the_trace() -> None:
    async def fail(_: Reply) -> None:
        raise RuntimeError

    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    house = House(Admission("reject", 1, 1, 1.0, Metrics()), asyncio.Event())
    context = SpanContext(trace_id=0xCAFE, span_id=1, is_remote=False)
    with trace.use_span(NonRecordingSpan(context)):
        await Exchange(house, fail)({"type": "http"}, never, send)
    assert f"(trace {0xCAFE:032x})" in sent[1]["body"].decode()


async def test_an_answer_that_is_over_is_left_alone() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    reply = Reply({"type": "http"}, send)
    await reply.whole(b"{}")
    await reply.failure(ApiError(503, "late"))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


async def test_unknown_urls_and_methods(shim: Shim) -> None:
    for method, path, status, code in [
        ("GET", "/v1/nothing", 404, "unknown_url"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
    ]:
        response = await shim.http.request(method, path)
        assert response.status_code == status
        assert response.json()["error"]["code"] == code
        assert ("allow" in response.headers) == (status == 405)


async def test_no_router(tokenizer_dir: Path, runtime: ScriptedRuntime) -> None:
    async with serving_shim(runtime, tokenizer_dir) as shim:
        await asyncio.to_thread(runtime.stop)
        async with asyncio.timeout(60):
            response = await shim.http.post("/v1/chat/completions", json={"messages": HELLO}, timeout=60)
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "unavailable"
        assert (await shim.http.get("/healthz")).status_code == 200, "this process is well"


async def test_no_model_without_a_name(shim: Shim) -> None:
    shim.runtime.models.clear()
    response = await shim.chat()
    assert (response.status_code, response.json()["error"]["code"]) == (503, "no_worker")


def test_a_port_that_is_taken(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["--bind", f"127.0.0.1:{port}"]) == 78
    assert f"cannot listen on 127.0.0.1:{port}" in capfd.readouterr().err.splitlines()[-1]


def test_a_tokenizer_that_is_not_there(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--bind", "127.0.0.1:0", "--tokenizer", "m=/no/such/place"]) == 78
    assert capfd.readouterr().err.splitlines()[-1] == "kakeya http: error: /no/such/place is no directory"


@pytest.mark.parametrize("reason", sorted(kakeya.KakeyaError.by_reason))
def test_every_error_of_the_sdk_has_a_status(reason: str) -> None:
    error = from_kakeya(kakeya.KakeyaError.by_reason[reason]("why"))
    assert error.status in (400, 401, 403, 429, 500, 503)
    assert (error.retry_after_seconds is not None) == (error.status in (429, 503))


def test_an_error_and_its_answer() -> None:
    error = ApiError(429, "slow", retry_after_seconds=0.2)
    assert error.header_items() == {"retry-after": "1"}
    assert json.loads(bytes(error_shapes.response(error, {}).body)) == error.body()
