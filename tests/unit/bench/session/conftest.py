from pathlib import Path

import pytest

from kakeya_bench.session import command, player
from kakeya_bench.session.run import run
from kakeya_bench.session.settings import SessionSettings
from tests.unit.bench.conversation import playing
from tests.unit.bench.conversation.playing import Outcome, Play


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is hardly one after a turn that failed."""
    monkeypatch.setattr(player, "ERROR_PAUSE_SECONDS", 0.01)


@pytest.fixture
def play(flags: list[str]) -> Play:
    """Runs what the command runs."""

    def play(*further: str) -> Outcome:
        return playing.played(SessionSettings.parse([*flags, *further]), run)

    return play


@pytest.fixture
def bench(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Play:
    """Runs the command."""

    def bench(*further: str) -> Outcome:
        return playing.typed(command.main, [*flags, *further], tmp_path / "report" / "report.json", capsys)

    return bench
