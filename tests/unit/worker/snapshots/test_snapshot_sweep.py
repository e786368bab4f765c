"""Files that no session needs leave the store: the router says which, the worker removes them."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from kakeya_shared.errors.tree import NoWorker
from kakeya_shared.rpc.rpc_boundary import Context
from kakeya_shared.rpc.server import RpcServer
from kakeya_stubs.worker.v1 import registry_pb2 as pb
from kakeya_stubs.worker.v1.registry_pb2_grpc import RegistryServiceServicer, add_RegistryServiceServicer_to_server
from kakeya_worker.engine.engine import Engine
from kakeya_worker.joining.registration import Registration
from kakeya_worker.joining.worker_identity import WorkerIdentity
from kakeya_worker.snapshot_stores.file import FileSnapshotStore
from kakeya_worker.snapshots.snapshot_sweep import SnapshotSweep
from kakeya_worker.snapshots.snapshots import Snapshots
from tests.unit.worker.engine_calls import TIMEOUT

IDENTITY = WorkerIdentity("w-1", "demo", "Demo", "127.0.0.1:7", num_threads=1)
SWEEP_SECONDS = 0.05


class Registry(RegistryServiceServicer):
    """Says which of the files are orphans; its first answers may fail."""

    def __init__(self) -> None:
        self.orphans: set[str] = set()
        self.asked: list[pb.SweepSnapshotsRequest] = []
        self.num_failures = 0

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinResponse:
        return pb.JoinResponse(contract_version=1, heartbeat_interval_seconds=1.0)

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatResponse:
        return pb.HeartbeatResponse()

    async def SweepSnapshots(self, request: pb.SweepSnapshotsRequest, context: Context) -> pb.SweepSnapshotsResponse:
        self.asked.append(request)
        if len(self.asked) <= self.num_failures:
            raise NoWorker("not now")
        return pb.SweepSnapshotsResponse(orphans=[name for name in request.names if name in self.orphans])


@pytest.fixture
def store(tmp_path: Path) -> FileSnapshotStore:
    return FileSnapshotStore(str(tmp_path))


@pytest.fixture
def snapshots(engine: Engine, store: FileSnapshotStore) -> Iterator[Snapshots]:
    snapshots = Snapshots(engine, store)
    yield snapshots
    snapshots.close(TIMEOUT)


@asynccontextmanager
async def sweeping(registry: Registry, engine: Engine, snapshots: Snapshots) -> AsyncIterator[None]:
    server = RpcServer("127.0.0.1:0", ["kakeya.worker.v1.RegistryService"], grace_seconds=0)
    add_RegistryServiceServicer_to_server(registry, server.grpc_server)
    async with server:
        registration = Registration(engine, IDENTITY, [server.address])
        sweep = SnapshotSweep(registration, snapshots, IDENTITY.pool, interval_seconds=SWEEP_SECONDS)
        tasks = [asyncio.create_task(work) for work in (registration.run(), sweep.run())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


def write_old(store: FileSnapshotStore, directory: Path, *names: str) -> None:
    for name in names:
        store.write(name, b"content")
        hour_ago = time.time() - 3600
        os.utime(directory / name, (hour_ago, hour_ago))


def names(store: FileSnapshotStore) -> set[str]:
    return {file.name for file in store.files("demo/")}


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def test_orphans_are_removed_and_others_stay(
    engine: Engine, store: FileSnapshotStore, snapshots: Snapshots, tmp_path: Path
) -> None:
    registry = Registry()
    orphan, part, needed = "demo/a.safetensors", "demo/b.safetensors.0123456789abcdef.part", "demo/c.safetensors"
    registry.orphans = {orphan, part, "demo/young.safetensors"}
    write_old(store, tmp_path, orphan, part, needed, "other/d.safetensors")
    async with sweeping(registry, engine, snapshots):
        await until(lambda: names(store) == {needed})
        assert set(registry.asked[0].names) == {orphan, part, needed}
        assert (registry.asked[0].pool, registry.asked[0].worker_id) == ("demo", "w-1")
    assert len(store.files("other/")) == 1


async def test_what_was_written_just_now_is_not_asked_about(
    engine: Engine, store: FileSnapshotStore, snapshots: Snapshots, tmp_path: Path
) -> None:
    registry = Registry()
    write_old(store, tmp_path, "demo/old.safetensors")
    hence = time.time() + 60
    store.write("demo/young.safetensors", b"content")
    os.utime(tmp_path / "demo/young.safetensors", (hence, hence))
    async with sweeping(registry, engine, snapshots):
        await until(lambda: len(registry.asked) >= 2)
    assert {name for request in registry.asked for name in request.names} == {"demo/old.safetensors"}


async def test_a_router_that_does_not_answer_is_asked_again(
    engine: Engine, store: FileSnapshotStore, snapshots: Snapshots, tmp_path: Path
) -> None:
    registry = Registry()
    registry.num_failures = 2
    registry.orphans = {"demo/a.safetensors"}
    write_old(store, tmp_path, "demo/a.safetensors")
    async with sweeping(registry, engine, snapshots):
        await until(lambda: not names(store))
    assert len(registry.asked) >= 3


async def test_many_files_are_asked_about_in_parts(
    engine: Engine, store: FileSnapshotStore, snapshots: Snapshots, tmp_path: Path
) -> None:
    registry = Registry()
    many = {f"demo/{number}.safetensors" for number in range(1_100)}
    registry.orphans = many
    (tmp_path / "demo").mkdir()
    hour_ago = time.time() - 3600
    for name in many:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (hour_ago, hour_ago))
    async with sweeping(registry, engine, snapshots):
        await until(lambda: not names(store))
    assert [len(request.names) for request in registry.asked[:2]] == [1_024, 76]
