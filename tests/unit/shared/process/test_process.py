"""Logs and the life of a service, each in a process of its own."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog
import uvloop
from opentelemetry import propagate
from opentelemetry.sdk.trace import TracerProvider

from kakeya_shared.process import service_process
from kakeya_shared.process.service_process import EXIT_CONFIG
from tests.service_logs import logs_as_they_were

PROGRAM = """
import asyncio, logging, structlog, sys
from opentelemetry.sdk.trace import TracerProvider
from kakeya_shared.process import service_process

async def program(stop):
    with TracerProvider().get_tracer("t").start_as_current_span("s"):
        structlog.get_logger().info("ours", session_id="tiny.x")
    structlog.get_logger().debug("too low")
    logging.getLogger("library").warning("theirs %s", 1)
    try:
        raise ValueError("bad")
    except ValueError:
        structlog.get_logger().exception("caught")
    if sys.argv[1] == "refuse":
        raise service_process.StartError("no such model")
    print("running", flush=True)
    await stop.wait()
    print("stopping", flush=True)

sys.exit(service_process.run("sample", "info", program, sys.argv[2]))
"""


def _start(mode: str, form: str = "json", errors: int = subprocess.PIPE) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, mode, form]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)


@pytest.mark.parametrize("form", ["json", "auto"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_runs_until_a_signal_and_logs_json(number: signal.Signals, form: str) -> None:
    process = _start("run", form)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert (output, process.returncode) == ("stopping\n", 0)
    ours, theirs, caught = map(json.loads, errors.splitlines())
    assert (ours["event"], ours["session_id"], ours["service"], ours["level"]) == ("ours", "tiny.x", "sample", "info")
    assert (len(ours["trace_id"]), len(ours["span_id"])) == (32, 16)
    assert ours["timestamp"].endswith("Z")
    assert (theirs["event"], theirs["level"]) == ("theirs 1", "warning")
    assert "trace_id" not in theirs
    assert "ValueError: bad" in caught["exception"]


def lines_for_people(errors: str) -> list[str]:
    return [line for line in errors.splitlines() if line.startswith("20")]


def test_people_read_lines_of_their_own() -> None:
    _, errors = _start("refuse", "console").communicate(timeout=60)
    ours, theirs, caught = lines_for_people(errors)
    assert ours.split()[1:4] == ["[info", "]", "ours"]
    assert "session_id=tiny.x" in ours
    assert "theirs 1" in theirs
    assert "caught" in caught
    assert "ValueError: bad" in errors
    assert "\x1b" not in errors, "colours are for terminals"


@pytest.mark.parametrize(("variables", "has_colours"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_on_a_terminal_a_line_is_for_people(
    variables: dict[str, str], has_colours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        process = _start("refuse", "auto", errors=theirs)
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # so a terminal ends on Linux
            while part := terminal.read(65536):
                said += part
        process.communicate(timeout=60)
    assert (b"\x1b[" in said) == has_colours
    assert b"no such model" in said
    assert b'"event"' not in said


@pytest.mark.usefixtures("_logging_restored")
@pytest.mark.parametrize("ignored", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_is_ignored_at_the_start_stays_ignored(ignored: signal.Signals) -> None:
    async def program(stop: asyncio.Event) -> None:
        os.kill(os.getpid(), ignored)
        for _ in range(10):
            await asyncio.sleep(0.01)
            assert not stop.is_set()
        assert signal.getsignal(ignored) is signal.SIG_IGN

    before = signal.signal(ignored, signal.SIG_IGN)
    try:
        assert service_process.run("sample", "info", program) == 0
    finally:
        signal.signal(ignored, before)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_of_its_log_does_not_end_a_service() -> None:
    with open("/dev/full", "w") as full, _start("run", errors=full.fileno()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "stopping\n"
    assert process.returncode == 0


@pytest.fixture
def _logging_restored() -> Iterator[None]:
    with logs_as_they_were():
        yield


@pytest.mark.usefixtures("_logging_restored")
def test_the_same_in_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    async def program(stop: asyncio.Event) -> None:
        assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
        with TracerProvider().get_tracer("t").start_as_current_span("s"):
            structlog.get_logger().info("ours")
        structlog.get_logger().info("outside")
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()

    assert service_process.run("sample", "info", program) == 0
    inside, outside = map(json.loads, capsys.readouterr().err.splitlines())
    assert len(inside["trace_id"]) == 32
    assert "trace_id" not in outside


@pytest.mark.usefixtures("_logging_restored")
def test_for_people_in_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    async def program(stop: asyncio.Event) -> None:
        structlog.get_logger().info("ours", status="OK")

    assert service_process.run("sample", "info", program, "console") == 0
    (line,) = lines_for_people(capsys.readouterr().err)
    assert line.split()[3:] == ["ours", "service=sample", "status=OK"]


@pytest.mark.usefixtures("_logging_restored")
def test_what_strangers_send_does_not_fill_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    async def program(stop: asyncio.Event) -> None:
        propagate.extract({"baggage": "%00=%ff;;;,", "traceparent": "0" * 600})
        logging.getLogger("grpc._cython.cygrpc").error("ExecuteBatchError raised in core by servicer method [/x]")
        logging.getLogger("grpc._cython.cygrpc").error("something else")
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()

    assert service_process.run("sample", "info", program) == 0
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["something else"]


@pytest.mark.usefixtures("_logging_restored")
def test_a_refused_start_in_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    async def program(stop: asyncio.Event) -> None:
        raise service_process.StartError("no such model")

    assert service_process.run("sample", "error", program) == EXIT_CONFIG
    assert capsys.readouterr().err == "kakeya sample: error: no such model\n"


@pytest.mark.usefixtures("_logging_restored")
def test_what_the_system_refuses_unforeseen_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    async def program(stop: asyncio.Event) -> None:
        raise OSError(28, "No space left on device")

    assert service_process.run("sample", "error", program) == 1
    logged = json.loads(capsys.readouterr().err)
    assert (logged["event"], logged["level"]) == ("the system refused something", "critical")
    assert "No space left on device" in logged["exception"]


@pytest.mark.usefixtures("_logging_restored")
def test_a_refusal_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def program(stop: asyncio.Event) -> None:
        raise service_process.StartError("two\nlines")

    assert service_process.run("sample", "error", program) == EXIT_CONFIG
    assert capsys.readouterr().err == "kakeya sample: error: two\\x0alines\n"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[x")
    assert service_process.run("sample", "error", program) == EXIT_CONFIG
    assert "OTEL_EXPORTER_OTLP_ENDPOINT is not a URL" in capsys.readouterr().err


def test_a_service_that_cannot_start_says_why_on_its_last_line() -> None:
    process = _start("refuse")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == EXIT_CONFIG
    assert errors.splitlines()[-1] == "kakeya sample: error: no such model"
