"""One turn is one trace over three processes, received by a real OTLP receiver."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kakeya
from tests.integration.converse import SECRET_TOKEN
from tests.integration.otlp_receiver import OtlpReceiver, ReceivedSpan, otlp_receiver
from tests.integration.processes import Runtime, runtime, wait_until

TURN = "kakeya.v1.RuntimeService/Turn"
CLIENT, SERVER = 3, 2  # opentelemetry.proto.trace.v1.Span.SpanKind


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def traced(model: Path, tmp_path_factory: pytest.TempPathFactory, receiver: OtlpReceiver) -> Iterator[Runtime]:
    """A runtime that exports at once, as the standard variables ask."""
    environment = receiver.environment()
    with runtime(model, tmp_path_factory.mktemp("traced"), num_workers=1, environment=environment) as made:
        yield made


@pytest.fixture(scope="module")
def conversation(traced: Runtime, receiver: OtlpReceiver) -> tuple[str, str]:
    """Session id and op id of one traced turn."""
    command = [sys.executable, "-m", "tests.integration.converse", traced.address]
    environment = {**os.environ, **receiver.environment()}
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    session_id, op_id = output.split()
    wait_until(lambda: len(_by_service(receiver, "/Turn")) == 2, "two spans of Turn")
    wait_until(lambda: len(_by_service(receiver, "/Generate")) == 2, "two spans of the worker's Generate")
    wait_until(lambda: len(_by_service(receiver, "/Append")) == 2, "two spans of the worker's Append")
    return session_id, op_id


def _by_service(receiver: OtlpReceiver, method: str) -> list[ReceivedSpan]:
    return [span for span in receiver.spans if span.name.endswith(method)]


def _one(receiver: OtlpReceiver, name: str, service: str, kind: int) -> ReceivedSpan:
    (span,) = [span for span in receiver.named(name) if span.service == service and span.kind == kind]
    return span


def test_one_turn_is_one_trace_with_the_right_parents(receiver: OtlpReceiver, conversation: tuple[str, str]) -> None:
    turn = _one(receiver, TURN, "application", CLIENT)
    assert turn.parent_id == ""
    for internal in ("Append", "Generate"):
        internal_name = f"kakeya.worker.v1.VerifierService/{internal}"
        chain = [
            turn,
            _one(receiver, TURN, "kakeya-router", SERVER),
            _one(receiver, internal_name, "kakeya-router", CLIENT),
            _one(receiver, internal_name, "kakeya-worker", SERVER),
        ]
        assert {span.trace_id for span in chain} == {turn.trace_id}
        assert [span.parent_id for span in chain[1:]] == [span.span_id for span in chain[:-1]]
        assert not any(span.is_error for span in chain)


def test_spans_say_what_the_turn_cost(receiver: OtlpReceiver, conversation: tuple[str, str], traced: Runtime) -> None:
    bytes_per_token = traced.list_workers()[0].kv_bytes_per_token
    for service, kind, name in (
        ("application", CLIENT, TURN),
        ("kakeya-router", SERVER, TURN),
        ("kakeya-worker", SERVER, "kakeya.worker.v1.VerifierService/Generate"),
    ):
        attributes = _one(receiver, name, service, kind).attributes
        assert attributes["gen_ai.conversation.id"] == conversation[0]
        assert attributes["kakeya.history_length"] == 26
        assert attributes["kakeya.kv_live_bytes"] == 26 * bytes_per_token
        assert attributes["rpc.system"] == "grpc"


def test_logs_carry_trace_and_session_ids_and_no_tokens(
    receiver: OtlpReceiver, conversation: tuple[str, str], traced: Runtime
) -> None:
    trace_ids = {span.trace_id for span in receiver.spans}
    lines = [json.loads(line) for line in traced.routers[0].log.read_text().splitlines()]
    ours = [line for line in lines if line.get("session_id") == conversation[0]]
    assert ours, "the router logs the session's life"
    assert {line["trace_id"] for line in ours if "trace_id" in line} <= trace_ids
    assert any("trace_id" in line for line in ours)
    for process in (*traced.routers, *traced.workers):
        assert f"{SECRET_TOKEN}, {SECRET_TOKEN}" not in process.log.read_text()


def test_heartbeats_are_not_traced(receiver: OtlpReceiver, conversation: tuple[str, str]) -> None:
    assert not _by_service(receiver, "/Heartbeat")


def test_errors_mark_their_spans(receiver: OtlpReceiver, traced: Runtime) -> None:
    with kakeya.Client(traced.address) as client, pytest.raises(kakeya.SessionNotFound):
        client.session("nothing.here").info()
    name = "kakeya.v1.RuntimeService/GetSessionInfo"
    wait_until(lambda: any(span.is_error for span in receiver.named(name)), "a failed span")
    (failed,) = [span for span in receiver.named(name) if span.is_error]
    assert failed.attributes["rpc.grpc.status_code"] == 5
