"""supervisord reads what was written, whatever users call their files and folders."""

import asyncio
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kakeya_local.stack.data_directory import DataDirectory, open_directory
from kakeya_local.stack.program import Program, Stage, redis_program, worker_program
from kakeya_local.stack.supervision import bound_process
from kakeya_local.stack.supervision.supervisor import Supervisor
from kakeya_local.stack.supervision.supervisor_config import configure
from kakeya_local.stack.supervision.supervisord import Options
from kakeya_shared.settings.addresses import HostPort
from tests.awkward_names import AWKWARD_NAMES

NAMES = st.text(st.characters(exclude_characters="\0/"), min_size=1).filter(lambda name: name not in (".", ".."))
ROUTER = HostPort("127.0.0.1", 5)


def programs(place: Path) -> list[Program]:
    workers = [
        worker_program(
            name,
            ROUTER,
            model=str(place / "model"),
            backend=None,
            sink=None,
            window=None,
            lanes=None,
            slab_bytes=None,
            threads=None,
            snapshots=place / "snapshots",
            metrics_bind=None,
        )
        for name in ("worker-1", "worker-2")
    ]
    return [*workers, redis_program(f"{place}/redis-server", 7, place / "redis", persistent=True)]


def as_supervisord_reads(path: Path) -> Any:
    options = Options()
    try:
        options.realize(["-c", str(path)], doc="")
    finally:
        options.poller.close()
    return options


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(name=NAMES)
@example(name=" #")
@example(name="%(here)s ;")
@example(name="~")
@example(name="\ud800 \n[program:x]\ncommand=x")
def test_paths_and_command_lines_are_read_as_they_were(tmp_path: Path, name: str) -> None:
    place = Path("/") / name
    directory = DataDirectory(place, place / "runtime", lock_fd=-1)
    given = programs(place)
    configure(given, directory, stop_grace_seconds=9).write(tmp_path / "config")
    options = as_supervisord_reads(tmp_path / "config")
    assert (options.logfile, options.pidfile) == (f"{place}/logs/supervisor.log", f"{place}/runtime/supervisor.pid")
    assert [server["file"] for server in options.server_configs] == [f"{place}/runtime/supervisor.sock"]
    read = {process.name: process for group in options.process_group_configs for process in group.process_configs}
    for program in given:
        process = read.pop(program.name)
        assert tuple(shlex.split(process.command)) == bound_process.command(*program.command)
        assert process.stdout_logfile == f"{place}/logs/{program.name}.log"
        assert (process.exitcodes, process.stopwaitsecs) == ([78], 9)
    assert not read


def test_stages_are_groups_in_their_order(tmp_path: Path) -> None:
    with open_directory(tmp_path, ephemeral=False) as directory:
        configure(programs(tmp_path), directory, stop_grace_seconds=9).write(tmp_path / "config")
        groups = sorted(as_supervisord_reads(tmp_path / "config").process_group_configs)
    assert [(group.name, [process.name for process in group.process_configs]) for group in groups] == [
        ("redis", ["redis"]),
        ("worker", ["worker-1", "worker-2"]),
    ]


@pytest.fixture
def start_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, of an awkward name, with a file in it for each module that a Python imports first."""
    folder = tmp_path / "started # here"
    folder.mkdir()
    for module in ("os", "json", "signal", "ctypes", "redis", "kakeya", "kakeya_local", "supervisor", "sitecustomize"):
        (folder / f"{module}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write(__name__ + ' ')\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", *filter(None, [os.environ.get("PYTHONPATH")]), ""]))
    yield folder
    assert not (tmp_path / "executed").exists(), (tmp_path / "executed").read_text()


@pytest.mark.usefixtures("start_folder")
async def test_nothing_of_the_folder_is_run_that_it_is_started_in(tmp_path: Path) -> None:
    """A process that is supervised finds the folder, and runs none of its files, nor do Pythons that it starts."""
    script = f"{shlex.quote(sys.executable)} -c 'import os, json; print(os.getcwd())'; exit 78"
    with open_directory(tmp_path / "data", ephemeral=False) as directory:
        program = Program("worker-1", Stage.WORKER, ("sh", "-c", script), 0)
        async with Supervisor([program], directory, stop_grace_seconds=1) as supervisor:
            async with asyncio.timeout(60):
                while "EXITED" not in [status.state for status in await supervisor.processes()]:
                    await asyncio.sleep(0.05)
        assert directory.log("worker-1").read_text() == f"{Path.cwd()}\n"


async def test_processes_under_awkward_names(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the data directory, of the directory for temporary files, and of the programs themselves."""
    place = tmp_path_factory.mktemp("p")
    short = place / "a #;%s '\"\n"
    short.mkdir()
    monkeypatch.setenv("TMPDIR", str(short))
    monkeypatch.setattr("tempfile.tempdir", None)
    for name in AWKWARD_NAMES:
        (short / name).symlink_to("/bin/echo")
    with open_directory(place / ", ".join(AWKWARD_NAMES), ephemeral=False) as directory:
        assert directory.runtime.is_relative_to(short)
        echoes = [
            Program(f"worker-{number}", Stage.WORKER, (str(short / name), name), 0)
            for number, name in enumerate(AWKWARD_NAMES)
        ]

        def has_spoken(echo: Program) -> bool:
            return directory.log(echo.name).exists() and b"\n" in directory.log(echo.name).read_bytes()

        async with Supervisor(echoes, directory, stop_grace_seconds=1) as supervisor:
            async with asyncio.timeout(60):
                while not all(map(has_spoken, echoes)):
                    await supervisor.processes()
                    await asyncio.sleep(0.02)
        for echo, name in zip(echoes, AWKWARD_NAMES, strict=True):
            said = os.fsdecode(directory.log(echo.name).read_bytes())
            assert said.startswith(f"{name}\n"), said
