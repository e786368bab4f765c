"""The supervisor with real processes: what it restarts, what it gives up, in which order it stops."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from kakeya_local.errors import StackError
from kakeya_local.stack.data_directory import DataDirectory, open_directory
from kakeya_local.stack.program import Program, Stage
from kakeya_local.stack.supervision import supervisor as supervisor_module
from kakeya_local.stack.supervision.supervisor import ProcessStatus, Supervisor


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    with open_directory(tmp_path, ephemeral=False) as opened:
        yield opened


def shell(name: str, script: str, *, stage: Stage = Stage.WORKER, start_seconds: int = 0) -> Program:
    return Program(name, stage, ("sh", "-c", script), start_seconds)


@asynccontextmanager
async def supervised(directory: DataDirectory, *programs: Program, **environment: str) -> AsyncIterator[Supervisor]:
    async with Supervisor(list(programs), directory, stop_grace_seconds=1, environment=environment) as supervisor:
        yield supervisor


async def until(supervisor: Supervisor, condition: Callable[[ProcessStatus], bool]) -> ProcessStatus:
    """The first process, once it is as it should be."""
    deadline = time.monotonic() + 60
    while True:
        processes = await supervisor.processes()
        if processes and condition(processes[0]):
            return processes[0]
        assert time.monotonic() < deadline, processes
        await asyncio.sleep(0.05)


async def test_a_crash_is_answered_with_a_new_start(directory: DataDirectory) -> None:
    async with supervised(directory, shell("worker-1", "exec sleep 60")) as supervisor:
        first = await until(supervisor, lambda status: status.state == "RUNNING")
        os.kill(first.pid, signal.SIGKILL)
        second = await until(supervisor, lambda status: status.state == "RUNNING" and status.pid != first.pid)
    assert not psutil.pid_exists(second.pid)


async def test_an_end_that_would_repeat_itself_is_final(directory: DataDirectory) -> None:
    async with supervised(directory, shell("worker-1", "echo started; exit 78")) as supervisor:
        ended = await until(supervisor, lambda status: status.state == "EXITED")
        await asyncio.sleep(1.5)  # longer than the first retry would take
        assert (await supervisor.processes())[0] == ended
    assert ended.exit_status == 78
    assert directory.log("worker-1").read_text() == "started\n"


async def test_the_environment_reaches_the_processes_and_no_file(directory: DataDirectory) -> None:
    async with supervised(directory, shell("worker-1", 'echo "$WORD"; exit 78'), WORD="open sesame") as supervisor:
        await until(supervisor, lambda status: status.state == "EXITED")
        places = (directory.runtime, directory.path)
        files = {path for place in places for path in place.rglob("*") if path.is_file()}
        holders = [path for path in files if b"open sesame" in path.read_bytes()]
    assert holders == [directory.log("worker-1")]
    assert directory.log("worker-1").read_text() == "open sesame\n"


async def test_starts_that_fail_again_and_again_are_given_up(directory: DataDirectory) -> None:
    async with supervised(directory, shell("worker-1", "echo no; exit 1", start_seconds=1)) as supervisor:
        await until(supervisor, lambda status: status.state == "FATAL")
        first = directory.log("worker-1").read_text()
        await supervisor.start("worker-1")
        while directory.log("worker-1").read_text() == first:
            await asyncio.sleep(0.02)
    # On a busy machine one may take a second to end, and then not count.
    assert len(first) >= len("no\n" * 4)


async def test_a_process_that_does_not_stop_is_killed(directory: DataDirectory) -> None:
    script = "trap '' TERM; echo deaf; while :; do sleep 0.1; done"
    async with supervised(directory, shell("worker-1", script)) as supervisor:
        status = await until(supervisor, lambda status: status.state == "RUNNING")
        while not directory.log("worker-1").exists() or "deaf" not in directory.log("worker-1").read_text():
            await asyncio.sleep(0.02)
    assert not psutil.pid_exists(status.pid)


async def test_a_stuck_supervisor_is_killed_with_its_processes(
    directory: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "_MARGIN_SECONDS", 0)
    async with supervised(directory, shell("redis", "exec sleep 60", stage=Stage.REDIS)) as supervisor:
        status = await until(supervisor, lambda status: status.state == "RUNNING")
        stuck = psutil.Process(status.pid).parent()
        stuck.suspend()
    assert not stuck.is_running()
    assert not psutil.pid_exists(status.pid) or psutil.Process(status.pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("fault", [None, StackError("the stack failed")])
async def test_a_cancel_while_all_is_stopped_leaves_nothing(directory: DataDirectory, fault: StackError | None) -> None:
    """It comes again and again. It is passed on, unless there was a fault before it, which says more."""
    script = "trap '' TERM; echo deaf; while :; do sleep 0.1; done"
    ends = asyncio.Event()
    found: list[int] = []

    async def hold() -> None:
        async with supervised(directory, shell("worker-1", script)) as supervisor:
            found.append((await until(supervisor, lambda status: status.state == "RUNNING")).pid)
            while not directory.log("worker-1").exists() or "deaf" not in directory.log("worker-1").read_text():
                await asyncio.sleep(0.02)
            ends.set()
            if fault is not None:
                raise fault

    held = asyncio.create_task(hold())
    await ends.wait()
    while not held.done():
        held.cancel()
        await asyncio.sleep(0.05)
    with pytest.raises(StackError if fault else asyncio.CancelledError):
        await held
    assert not psutil.pid_exists(found[0])


async def test_a_supervisor_that_cannot_start_says_why(directory: DataDirectory) -> None:
    with pytest.raises(StackError, match=r"^the supervisor ended unexpectedly: Error: .*bad:name"):
        async with supervised(directory, shell("bad:name", "true")) as supervisor:
            while True:
                await supervisor.processes()
                await asyncio.sleep(0.05)
