"""`kakeya router` as a process, and how a router ends."""

import asyncio
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kakeya_router import command
from kakeya_router.program import Router, serve
from kakeya_router.settings import RouterSettings
from kakeya_shared.errors.tree import Draining
from kakeya_shared.process.service_process import EXIT_CONFIG, StartError
from tests import ports
from tests.read_once import read_once
from tests.unit.router.stack import FAST, LONG_SECONDS, Stack, answer, eventually


@pytest.fixture
def free_port() -> int:
    return ports.free_port()


@pytest.fixture
def port() -> Iterator[int]:
    """A port that is taken."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield probe.getsockname()[1]


def _start(*flags: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "kakeya_router", *flags], stderr=subprocess.PIPE, text=True)


def _serving(address: str) -> None:
    deadline = time.monotonic() + LONG_SECONDS
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while True:
            request = health_pb2.HealthCheckRequest()
            response = stub.Check(request, wait_for_ready=True, timeout=LONG_SECONDS)
            if response.status == health_pb2.HealthCheckResponse.SERVING:
                return
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_cleanly(redis_url: str, free_port: int, number: signal.Signals) -> None:
    address = f"127.0.0.1:{free_port}"
    process = _start("--redis", redis_url, "--bind", address)
    try:
        _serving(address)
        process.send_signal(number)
        _, errors = process.communicate(timeout=LONG_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0
    assert '"event": "router stopped"' in errors
    assert "Traceback" not in errors


def test_a_taken_port_is_one_clear_line(redis_url: str, port: int) -> None:
    process = _start("--redis", redis_url, "--bind", f"127.0.0.1:{port}")
    _, errors = process.communicate(timeout=LONG_SECONDS)
    assert process.returncode == EXIT_CONFIG
    assert errors.splitlines()[-1] == f"kakeya router: error: cannot listen on 127.0.0.1:{port}: is it in use?"


async def test_a_taken_port_is_a_start_error(redis_url: str, port: int) -> None:
    with pytest.raises(StartError, match="in use"):
        async with Router(RouterSettings(redis=redis_url, bind=f"127.0.0.1:{port}")):
            raise AssertionError


def test_the_command_in_this_process(redis_url: str, port: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert command.SUMMARY
    assert command.main(["--redis", redis_url, "--bind", f"127.0.0.1:{port}"]) == EXIT_CONFIG
    assert "is it in use?" in capfd.readouterr().err


def test_the_module_is_the_command(
    redis_url: str, port: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kakeya_router", "--redis", redis_url, "--bind", f"127.0.0.1:{port}"])
    with pytest.raises(SystemExit) as raised:
        runpy.run_module("kakeya_router", run_name="__main__")
    assert raised.value.code == EXIT_CONFIG


async def test_the_program_runs_until_it_is_told_to_stop(redis_url: str) -> None:
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(RouterSettings(redis=redis_url, bind="127.0.0.1:0"), stop))
    await asyncio.sleep(0.2)
    assert not serving.done()
    stop.set()
    await asyncio.wait_for(serving, LONG_SECONDS)


async def test_running_calls_of_a_lone_router_get_their_grace_and_new_ones_are_refused(stack: Stack) -> None:
    """It goes on taking heartbeats: workers would lose their leases while a call runs."""
    client = await stack.router(shutdown_grace_seconds=3600)
    worker = await stack.worker(client)
    session_id = await client.session()
    worker.flowing.clear()
    appending = asyncio.create_task(client.append(session_id, [1]))
    while not worker.calls["Append"]:
        await asyncio.sleep(0.01)
    stopping = asyncio.create_task(stack.stop_routers())

    async def is_refused() -> bool:
        try:
            await client.info(session_id)
        except Draining:
            return True
        return False

    await eventually(is_refused)
    for call in (client.create(), client.close(session_id), client.generate(session_id)):
        with pytest.raises(Draining):
            await call
    await stack.worker(client, "worker-b")
    worker.flowing.set()
    assert (await appending).history_length == 1
    await asyncio.wait_for(stopping, LONG_SECONDS)  # and not for all of the grace
    assert not await stack.redis.exists("kakeya:routers")


async def test_running_calls_get_their_grace_and_new_ones_go_to_another_router(stack: Stack) -> None:
    """Over the connection that there is, and without an error: it was given up for new calls."""
    leaving = await stack.router(shutdown_grace_seconds=3600)
    worker = await stack.worker(leaving)
    async with Router(read_once(RouterSettings, **({"redis": stack.url} | FAST))) as staying:
        client = stack.client(f"ipv4:{leaving.address},{staying.address}")
        session_id, idle = await client.session(), await client.session()
        worker.flowing.clear()
        appending = asyncio.create_task(client.append(session_id, [1]))
        while not worker.calls["Append"]:
            await asyncio.sleep(0.01)
        stopping = asyncio.create_task(stack.stop_routers())

        async def listens_no_more() -> bool:
            host, _, port = leaving.address.rpartition(":")
            with socket.socket() as probe:
                return probe.connect_ex((host, int(port))) != 0

        await eventually(listens_no_more)
        assert (await client.info(idle)).history_length == 0
        assert not appending.done()
        worker.flowing.set()
        assert (await appending).history_length == 1
        await asyncio.wait_for(stopping, LONG_SECONDS)  # and not for all of the grace
        assert await stack.redis.zrange("kakeya:routers", 0, -1) == [staying.address]


async def test_a_call_that_outlasts_the_grace_is_sent_elsewhere_and_written_through(stack: Stack) -> None:
    client = await stack.router(shutdown_grace_seconds=0.1)
    worker = await stack.worker(client)
    session_id = await client.session()
    await client.append(session_id, [1])
    call = client.generating(session_id, 1_000_000)
    assert (await call.read()).HasField("token_id")
    reading = asyncio.create_task(answer(_drained(call)))
    await asyncio.wait_for(stack.stop_routers(), LONG_SECONDS)
    with pytest.raises(Draining):
        await reading
    record = await stack.redis.hgetall(f"kakeya:{{tiny}}:session:{session_id}")
    assert int(record["history_length"]) == len(worker.lanes[session_id].token_ids)
    assert not await stack.redis.exists(f"kakeya:{{tiny}}:op:{session_id}")
    successor = await stack.router()
    await successor.append(session_id, [1])


async def _drained(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


async def test_a_router_stops_whenever_it_is_told(redis_url: str) -> None:
    for number in range(20):
        router = Router(RouterSettings(redis=redis_url, bind="127.0.0.1:0"))
        async with asyncio.timeout(LONG_SECONDS):
            async with router:
                await asyncio.sleep(0.0005 * number)  # somewhere in the middle of its first calls to Redis
