import asyncio
import io
import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from kakeya.bench import report_file
from kakeya.bench.session import command, options, player
from kakeya.bench.session.run import run
from kakeya.bench.verdict import exit_status
from kakeya_stubs.admin.v1 import admin_pb2, admin_pb2_grpc
from tests.unit.sdk.bench.playing import CONFIG, RSS_BYTES, Outcome, Play
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import ScriptedRuntime


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the person who runs the tests."""
    for name in [name for name in os.environ if name.startswith("KAKEYA_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def admin() -> Iterator[ScriptedAdmin]:
    admin = ScriptedAdmin()
    admin.workers = [admin_pb2.WorkerStatus(worker_id="scripted", dtype="float32", rss_bytes=RSS_BYTES)]
    yield admin
    admin.stop()


@pytest.fixture
def runtime(admin: ScriptedAdmin) -> Iterator[ScriptedRuntime]:
    """A runtime that serves operators, too."""
    runtime = ScriptedRuntime(add_service=partial(admin_pb2_grpc.add_AdminServiceServicer_to_server, admin))
    yield runtime
    runtime.stop()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config.json by which a token's KV weighs what the scripted runtime says."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG))
    return file


@pytest.fixture
def flags(runtime: ScriptedRuntime, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What each run of the bench is told. There is hardly a pause after a turn that failed."""
    monkeypatch.setattr(player, "ERROR_PAUSE_SECONDS", 0.01)
    return ["--address", runtime.address, "--config", str(config), "--output", str(tmp_path / "report")]


@pytest.fixture
def play(flags: list[str]) -> Play:
    def play(*further: str) -> Outcome:
        asked = options.parse([*flags, *further])
        report_file.prepare(asked.output)
        console = Console(file=io.StringIO(), width=200)
        report, interrupted = asyncio.run(run(asked, console))
        status = exit_status(report.verdicts()) if interrupted is None else interrupted
        assert isinstance(console.file, io.StringIO)
        return Outcome(status, "", console.file.getvalue(), json.loads(json.dumps(report.document())))

    return play


@pytest.fixture
def bench(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Play:
    def bench(*further: str) -> Outcome:
        file = tmp_path / "report" / "report.json"
        try:
            status = command.main([*flags, *further])
        except SystemExit as refusal:  # as argparse does
            assert isinstance(refusal.code, int)
            status = refusal.code
        said = capsys.readouterr()
        return Outcome(status, said.out, said.err, json.loads(file.read_text()) if file.exists() else {})

    return bench


@pytest.fixture(autouse=True)
def heeds_ctrl_c() -> Iterator[None]:
    """As a terminal's program does, also where the tests run in the background of a script, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
