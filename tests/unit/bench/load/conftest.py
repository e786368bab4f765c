from pathlib import Path

import pytest

from kakeya_bench.load import command
from kakeya_bench.load.run import run
from tests.unit.bench.conversation import playing
from tests.unit.bench.conversation.own_clock import OwnClock
from tests.unit.bench.load.sweeping import SHORT, TICK_SECONDS, Sweep, Swept, asked, said
from tests.unit.sdk.scripted_runtime import ScriptedRuntime


@pytest.fixture(autouse=True)
def clock(own_clock: OwnClock) -> OwnClock:
    """By which sweeps take their time."""
    own_clock.tick_seconds = TICK_SECONDS
    return own_clock


@pytest.fixture
def flags(runtime: ScriptedRuntime, tmp_path: Path) -> list[str]:
    """Flags of each run."""
    return ["--address", runtime.address, "--output", str(tmp_path / "report"), *SHORT]


@pytest.fixture
def sweep(flags: list[str]) -> Sweep:
    """Runs what the command runs."""
    return lambda *further: Swept(*playing.played(asked(*flags, *said(*further)), run))


@pytest.fixture
def bench(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Sweep:
    """Runs the command."""
    report = tmp_path / "report" / "load.json"
    return lambda *further: Swept(*playing.typed(command.main, [*flags, *said(*further)], report, capsys))
