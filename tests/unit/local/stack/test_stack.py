"""When a starting stack gives up: judgements on what the supervisor reports, without the wait for it."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kakeya.cli.flags.connection import Connection
from kakeya_local.errors import StackError
from kakeya_local.settings import UpSettings
from kakeya_local.stack.data_directory import DataDirectory
from kakeya_local.stack.planning.http_entrance import HttpEntrance
from kakeya_local.stack.planning.http_plan import HttpPlan
from kakeya_local.stack.planning.observers import Observers
from kakeya_local.stack.planning.plan import Plan
from kakeya_local.stack.stack import Stack
from kakeya_local.stack.supervision import full_disk
from kakeya_local.stack.supervision.supervisor import ProcessStatus, Supervisor
from kakeya_shared.settings.addresses import HostPort
from kakeya_stubs.admin.v1 import admin_pb2
from tests.unit.local.registry import serving_registry
from tests.unit.local.scripted_http import scripted_http

RUNNING = ProcessStatus("worker-1", "RUNNING", 100, 0)


class ScriptedSupervisor:
    """Reports one process, a status a poll; the last one for ever."""

    def __init__(self, *statuses: ProcessStatus) -> None:
        self._statuses = list(statuses)
        self.started: list[str] = []

    async def start(self, name: str) -> None:
        self.started.append(name)

    async def processes(self) -> list[ProcessStatus]:
        return [self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]]


@pytest.fixture
def directory(tmp_path: Path) -> DataDirectory:
    (tmp_path / "logs").mkdir()
    return DataDirectory(tmp_path, tmp_path, -1)


def stack(
    directory: DataDirectory,
    reports: list[str],
    *statuses: ProcessStatus,
    ready_seconds: float = 60,
    plan: dict[str, Any] | None = None,
) -> Stack:
    """A stack whose router never answers, unless `plan` says otherwise: nothing listens on port 1."""
    nowhere = HostPort("127.0.0.1", 1)
    settings = UpSettings(ready_timeout_seconds=ready_seconds)
    made = Plan(settings, "model", "redis-server", redis=nowhere, bind=nowhere, connection=Connection(str(nowhere)))
    supervisor = cast(Supervisor, ScriptedSupervisor(*statuses))
    return Stack(replace(made, **plan or {}), supervisor, directory, reports.append)


async def test_a_worker_that_dies_late_each_time_is_given_up(directory: DataDirectory) -> None:
    directory.log("worker-1").write_text("loading\nout of memory\n\n")
    reports: list[str] = []
    statuses = [replace(RUNNING, pid=pid) for pid in range(1, 6)]
    with pytest.raises(StackError, match=r"^worker-1: keeps ending; the last it said: out of memory$"):
        await stack(directory, reports, *statuses).wait_ready()
    assert reports[0] == "waiting for the router"
    assert reports[1:] == [f"worker-1 ended and was started again (pid {pid})" for pid in range(2, 6)]


async def test_a_pause_between_two_starts_is_one_restart(directory: DataDirectory) -> None:
    reports: list[str] = []
    down = replace(RUNNING, state="BACKOFF", pid=0)
    statuses = [RUNNING, down, down, replace(RUNNING, pid=101), replace(RUNNING, state="FATAL", pid=0)]
    with pytest.raises(StackError, match="the last it said: nothing"):
        await stack(directory, reports, *statuses).watch()
    assert reports == ["worker-1 ended and was started again (pid 101)"]


@pytest.mark.parametrize("state", ["BACKOFF", "EXITED", "FATAL"])
async def test_a_refusal_is_repeated_in_its_own_words(directory: DataDirectory, state: str) -> None:
    directory.log("worker-1").write_text("noise\nkakeya worker: error: no such model\n")
    with pytest.raises(StackError, match=r"^worker-1: no such model$"):
        await stack(directory, [], replace(RUNNING, state=state, pid=0)).watch()


async def test_a_configuration_error_without_words_is_final_too(directory: DataDirectory) -> None:
    directory.log("worker-1").write_text("the last line")
    with pytest.raises(StackError, match=r"^worker-1: the last line$"):
        await stack(directory, [], replace(RUNNING, state="EXITED", pid=0, exit_status=78)).watch()


async def test_a_killed_process_is_awaited(directory: DataDirectory) -> None:
    killed = replace(RUNNING, state="EXITED", pid=0, exit_status=-1)
    directory.log("worker-1").write_text("serving\n")
    with pytest.raises(StackError, match="keeps ending"):
        await stack(directory, [], killed, RUNNING, replace(RUNNING, state="FATAL", pid=0)).watch()


async def test_a_start_that_takes_too_long(directory: DataDirectory) -> None:
    with pytest.raises(StackError, match=r"^gave up waiting for the router \(--ready-timeout-seconds\)$"):
        await stack(directory, [], RUNNING, ready_seconds=0.1).wait_ready()


async def test_ready_is_not_said_before_http_is(directory: DataDirectory) -> None:
    reports: list[str] = []
    with serving_registry() as (address, router), scripted_http() as server:
        router.workers = [admin_pb2.WorkerStatus(worker_id="worker-1")]
        server.answers = [(503, b'{"error": {"message": "no tokenizer yet"}}'), (200, b"")]
        http = HttpPlan(server.address, HttpEntrance(server.address), "nano", None)
        made = stack(directory, reports, RUNNING, plan={"connection": Connection(address), "http": http})
        await made.wait_ready()
        assert len(server.requests) == 2
    assert reports == ["waiting for the HTTP shim: no tokenizer yet"]


def watched_by(*names: str, address: HostPort) -> dict[str, Any]:
    return {"observers": Observers(dict.fromkeys(names, "/bin/true"), dict.fromkeys(names, address), {}, None, ())}


async def test_ready_is_not_said_before_prometheus_is(directory: DataDirectory) -> None:
    reports: list[str] = []
    with serving_registry() as (address, router), scripted_http() as server:
        router.workers = [admin_pb2.WorkerStatus(worker_id="worker-1", address="127.0.0.1:7")]
        server.answers = [(503, b"Service Unavailable"), (200, b"")]
        plan = {"connection": Connection(address), **watched_by("prometheus", address=server.address)}
        made = stack(directory, reports, replace(RUNNING, name="prometheus"), plan=plan)
        await made.wait_ready()
        (row,) = await made.table()
        assert (row.name, row.address, row.metrics) == ("prometheus", str(server.address), str(server.address))
    assert reports == ["waiting for Prometheus: it answers 503"]


async def test_the_stack_goes_on_without_what_only_watches(directory: DataDirectory) -> None:
    directory.log("prometheus").write_text("no space left on device\n")
    reports: list[str] = []
    with serving_registry() as (address, router):
        router.workers = [admin_pb2.WorkerStatus(worker_id="worker-1", address="127.0.0.1:7")]
        plan = {"connection": Connection(address), **watched_by("prometheus", address=HostPort("127.0.0.1", 1))}
        gone = ProcessStatus("prometheus", "FATAL", 0, 1)
        made = stack(directory, reports, gone, plan=plan)
        await made.wait_ready()
        assert await made.table() == []
    lost = "prometheus: keeps ending; the last it said: no space left on device; the stack goes on without it"
    assert reports == ["waiting for Prometheus: it does not answer", lost]


async def test_nor_does_it_wait_for_one_that_ends_again_and_again(directory: DataDirectory) -> None:
    directory.log("prometheus").write_text("out of memory\n")
    reports: list[str] = []
    with serving_registry() as (address, router):
        router.workers = [admin_pb2.WorkerStatus(worker_id="worker-1", address="127.0.0.1:7")]
        plan = {"connection": Connection(address), **watched_by("prometheus", address=HostPort("127.0.0.1", 1))}
        statuses = [ProcessStatus("prometheus", "RUNNING", pid, 0) for pid in range(1, 8)]
        await stack(directory, reports, *statuses, plan=plan).wait_ready()
    assert reports[-1] == "prometheus: keeps ending; the last it said: out of memory; the stack goes on without it"


async def test_a_start_on_a_full_disk_is_refused_with_that_reason(
    directory: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_disk, "shortage", lambda path: f"the disk of {path} is full")
    reports: list[str] = []
    with pytest.raises(StackError, match=rf"^redis: the disk of {directory.redis} is full$"):
        await stack(directory, reports, replace(RUNNING, name="redis", state="BACKOFF", pid=0)).wait_ready()


async def test_of_a_stack_that_keeps_nothing_no_disk_is_blamed(
    directory: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_disk, "shortage", lambda path: f"the disk of {path} is full")
    plan = {"settings": UpSettings(ephemeral=True)}
    with pytest.raises(StackError, match=r"^redis: keeps ending"):
        await stack(directory, [], replace(RUNNING, name="redis", state="FATAL", pid=0), plan=plan).watch()
