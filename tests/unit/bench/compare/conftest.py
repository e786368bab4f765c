from collections.abc import Iterator
from pathlib import Path

import pytest

from kakeya_bench.compare.run import run
from kakeya_bench.compare.settings import CompareSettings
from tests.unit.bench.compare.comparing import SHORT
from tests.unit.bench.compare.scripted_rival import ScriptedRival, scripted_rival
from tests.unit.bench.conversation import playing
from tests.unit.bench.conversation.playing import Outcome, Play
from tests.unit.sdk.scripted_runtime import ScriptedRuntime


@pytest.fixture
def rival() -> Iterator[ScriptedRival]:
    with scripted_rival() as rival:
        yield rival


@pytest.fixture
def other() -> Iterator[ScriptedRival]:
    with scripted_rival() as rival:
        yield rival


@pytest.fixture
def flags(runtime: ScriptedRuntime, tmp_path: Path) -> list[str]:
    """What each run is told: short turns."""
    return ["--address", runtime.address, "--output", str(tmp_path / "report"), *SHORT]


@pytest.fixture
def play(flags: list[str]) -> Play:
    def play(*further: str) -> Outcome:
        return playing.played(CompareSettings.parse([*flags, *further]), run)

    return play
