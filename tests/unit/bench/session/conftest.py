from pathlib import Path

import pytest

from kakeya_bench.session import player


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is hardly one after a turn that failed."""
    monkeypatch.setattr(player, "ERROR_PAUSE_SECONDS", 0.01)


@pytest.fixture
def flags(flags: list[str], config: Path) -> list[str]:
    return [*flags, "--config", str(config)]
