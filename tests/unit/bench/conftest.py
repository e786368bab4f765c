import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from kakeya_stubs.admin.v1 import admin_pb2, admin_pb2_grpc
from tests.unit.bench.conversation import playing
from tests.unit.bench.conversation.playing import CONFIG, RSS_BYTES, OwnClock, Play
from tests.unit.sdk.conftest import plain_dir, template_dir, tokenizer
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

__all__ = ["plain_dir", "template_dir", "tokenizer"]  # fixtures


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the person who runs the tests."""
    for name in [name for name in os.environ if name.startswith("KAKEYA_")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def heeds_ctrl_c() -> Iterator[None]:
    """As a terminal's program does, also where the tests run in the background of a script, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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
def flags(runtime: ScriptedRuntime, tmp_path: Path) -> list[str]:
    """What each run of a bench is told."""
    return ["--address", runtime.address, "--output", str(tmp_path / "report")]


@pytest.fixture
def room(request: pytest.FixtureRequest) -> str:
    """Of the bench that is tested, e.g. `load`."""
    return request.path.relative_to(Path(__file__).parent).parts[0]


@pytest.fixture
def play(flags: list[str], room: str) -> Play:
    """Runs what the command runs."""
    kind = getattr(import_module(f"kakeya_bench.{room}.settings"), f"{room.capitalize()}Settings")
    run = import_module(f"kakeya_bench.{room}.run").run
    return lambda *further: playing.played(kind.parse([*flags, *further]), run)


@pytest.fixture
def bench(flags: list[str], room: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Play:
    """Runs the command."""
    main = import_module(f"kakeya_bench.{room}.command").main
    report = tmp_path / "report" / import_module(f"kakeya_bench.{room}.run").JSON_NAME
    return lambda *further: playing.typed(main, [*flags, *further], report, capsys)


@pytest.fixture
def own_clock(monkeypatch: pytest.MonkeyPatch) -> OwnClock:
    """In the place of the benches' clock."""
    return OwnClock(monkeypatch)
