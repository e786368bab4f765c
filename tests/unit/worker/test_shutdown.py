"""A worker that is asked to stop: routers take its sessions away while it waits, and it waits no longer than that."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import Draining, InvalidField
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_stubs.worker.v1.verifier_pb2_grpc import VerifierServiceStub
from kakeya_worker import program
from kakeya_worker.settings import WorkerSettings
from kakeya_worker.snapshots.snapshot_store import GROUP
from tests.unit.worker.joining.test_registration import Registry, _heartbeat, _serving

TIMEOUT = 60.0
LONG = "3600"
SIZES = ("--window", "64", "--lanes", "2", "--threads", "1", "--weights", "float32")


class Worker:
    """A worker in this process, and its gRPC interface."""

    def __init__(self, checkpoint: Path, snapshots: Path, joins: str, grace_seconds: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
        flags = ["--bind", address, "--snapshots", str(snapshots), "--shutdown-grace-seconds", grace_seconds, *SIZES]
        joining = ["--join", joins] if joins else []
        settings = WorkerSettings.parse(["--model", str(checkpoint), *flags, *joining])
        self.stop = asyncio.Event()
        self.running = asyncio.create_task(program.serve(settings, self.stop))
        self.channel = grpc.aio.insecure_channel(address)
        self.verifier: Any = VerifierServiceStub(self.channel)

    async def open(self, session_id: str, num_tokens: int = 20) -> None:
        request = pb.OpenSessionRequest(session_id=session_id, epoch=1)
        while not await self._opened(request):
            await asyncio.sleep(0.02)
        token_ids = range(num_tokens)
        await self.verifier.Append(pb.AppendRequest(session_id=session_id, epoch=1, token_ids=token_ids))

    async def _opened(self, request: pb.OpenSessionRequest) -> bool:
        try:
            await self.verifier.OpenSession(request, wait_for_ready=True)
        except grpc.aio.AioRpcError:  # its model is not loaded yet
            return False
        return True

    async def close(self, session_id: str) -> int:
        request = pb.CloseSessionRequest(session_id=session_id, epoch=1)
        return int((await self.verifier.CloseSession(request)).final_history_length)

    async def ended(self) -> None:
        await asyncio.wait_for(self.running, TIMEOUT)


@asynccontextmanager
async def running(
    checkpoint: Path, directory: Path, joins: str = "", grace_seconds: str = LONG
) -> AsyncIterator[Worker]:
    worker = Worker(checkpoint, directory / "snapshots", joins, grace_seconds)
    try:
        yield worker
    finally:
        worker.stop.set()
        worker.running.cancel()
        await asyncio.gather(worker.running, return_exceptions=True)
        await worker.channel.close()


async def draining(registry: Registry) -> None:
    """Waits for a heartbeat that says so."""
    while not (await asyncio.wait_for(registry.heartbeats.get(), TIMEOUT)).draining:
        continue


async def test_it_serves_until_its_sessions_are_taken_away(random_checkpoint: Path, tmp_path: Path) -> None:
    registry = Registry()
    async with _serving(registry) as address, running(random_checkpoint, tmp_path, address) as worker:
        for session_id in ("one", "two"):
            await worker.open(session_id)
        await _heartbeat(registry, complete=True)
        worker.stop.set()
        await draining(registry)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await refused(worker)
        assert isinstance(error_details.decode(raised.value), Draining)
        snapshot = pb.WriteSnapshotRequest(session_id="one", epoch=1, prefix="tiny/tiny.one-1-0")
        assert (await worker.verifier.WriteSnapshot(snapshot)).length == 20
        stop = pb.StopRequest(session_id="one", epoch=1, journaled_length=20)
        assert (await worker.verifier.Stop(stop)).lane.history_length == 20
        assert await worker.close("one") == 20
        assert not worker.running.done()
        assert registry.leaves.empty()
        assert await worker.close("two") == 20
        await worker.ended()
        assert not registry.leaves.empty()


async def refused(worker: Worker) -> None:
    """An operation, until one fails: the first may come before the engine is told."""
    while True:
        await worker.verifier.Append(pb.AppendRequest(session_id="one", epoch=1, history_length=20))


async def test_a_running_generate_uses_the_grace(random_checkpoint: Path, tmp_path: Path) -> None:
    registry = Registry()
    async with _serving(registry) as address, running(random_checkpoint, tmp_path, address) as worker:
        await worker.open("one")
        await _heartbeat(registry, complete=True)
        request = pb.GenerateRequest(session_id="one", epoch=1, history_length=20, max_tokens=60)
        call = worker.verifier.Generate(request)
        await call.read()
        worker.stop.set()
        await draining(registry)
        while (response := await call.read()) is not grpc.aio.EOF:
            last = response
        assert last.done.generated_token_count == 60
        assert await worker.close("one") == 80
        await worker.ended()


async def test_without_sessions_it_ends_at_once(random_checkpoint: Path, tmp_path: Path) -> None:
    registry = Registry()
    async with _serving(registry) as address, running(random_checkpoint, tmp_path, address) as worker:
        await _heartbeat(registry, complete=True)
        worker.stop.set()
        await worker.ended()
        assert not registry.leaves.empty()


async def test_what_nobody_takes_away_is_left_when_the_grace_is_over(random_checkpoint: Path, tmp_path: Path) -> None:
    registry = Registry()
    async with _serving(registry) as address, running(random_checkpoint, tmp_path, address, "0.3") as worker:
        await worker.open("one")
        await _heartbeat(registry, complete=True)
        worker.stop.set()
        await worker.ended()
        assert not registry.leaves.empty()


async def test_without_a_router_idle_sessions_are_not_waited_for(random_checkpoint: Path, tmp_path: Path) -> None:
    async with running(random_checkpoint, tmp_path) as alone:
        await alone.open("one")
        alone.stop.set()
        await alone.ended()


@pytest.mark.parametrize("before", [True, False])
async def test_when_all_routers_are_away_idle_sessions_are_left(
    random_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, before: bool
) -> None:
    monkeypatch.setattr(program, "_HEARD_SECONDS", 0.1)
    registry = Registry()
    refusal = InvalidField("lanes: too large", metadata={"field": "lanes"})
    async with _serving(registry) as address, running(random_checkpoint, tmp_path, address) as worker:
        await worker.open("one")
        await _heartbeat(registry, complete=True)
        if before:
            registry.heartbeat_refusal = refusal
        worker.stop.set()
        if not before:
            await draining(registry)
            registry.heartbeat_refusal = refusal
        await worker.ended()


async def test_a_store_that_hangs_keeps_no_process(random_checkpoint: Path, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_hanging_store(tmp_path)), *sys.path])}
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    flags = ["--bind", address, "--snapshots", f"hanging://{begun}", "--shutdown-grace-seconds", "1", *SIZES]
    command = [sys.executable, "-m", "kakeya_worker", "--model", str(random_checkpoint), *flags]
    process = await asyncio.create_subprocess_exec(*command, env=environment, stderr=asyncio.subprocess.PIPE)
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            await _await_reading(VerifierServiceStub(channel), begun.exists)
            process.send_signal(signal.SIGTERM)
            _, errors = await asyncio.wait_for(process.communicate(), TIMEOUT)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    assert process.returncode == 0
    assert b"the snapshot store hangs" in errors


def _hanging_store(directory: Path) -> Path:
    """A plugin whose files cannot be opened, as those of a server that is gone."""
    information = directory / "plugins" / "hanging_store-0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: hanging-store\nVersion: 0\n")
    (information / "entry_points.txt").write_text(f"[{GROUP}]\nhanging = hanging_store:HangingStore\n")
    (information.parent / "hanging_store.py").write_text(_HANGING_STORE)
    return information.parent


_HANGING_STORE = """
import pathlib
import threading

class HangingStore:
    identity = "hanging"

    def __init__(self, url):
        self._begun = pathlib.Path(url.removeprefix("hanging://"))

    def open(self, name):
        self._begun.touch()
        threading.Event().wait()
"""


async def _await_reading(verifier: Any, is_begun: Callable[[], bool]) -> None:
    """Asks for a session until the worker has its model and reads a snapshot."""
    name = "tiny/tiny.one-1-0-00000000-20.safetensors"
    request = pb.OpenSessionRequest(session_id="one", epoch=1, snapshots=[name])
    async with asyncio.timeout(TIMEOUT):
        while not is_begun():
            call = verifier.OpenSession(request, wait_for_ready=True)
            while not call.done() and not is_begun():
                await asyncio.sleep(0.02)
            if call.done():
                await asyncio.gather(call, return_exceptions=True)
