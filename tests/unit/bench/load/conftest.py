import pytest

from tests.unit.bench.conversation.playing import OwnClock, Play
from tests.unit.bench.load.sweeping import SHORT, TICK_SECONDS, said


@pytest.fixture(autouse=True)
def clock(own_clock: OwnClock) -> OwnClock:
    """By which sweeps take their time."""
    own_clock.tick_seconds = TICK_SECONDS
    return own_clock


@pytest.fixture
def flags(flags: list[str]) -> list[str]:
    return [*flags, *SHORT]


@pytest.fixture
def sweep(play: Play) -> Play:
    """Runs what the command runs."""
    return lambda *further: play(*said(*further))


@pytest.fixture
def bench(bench: Play) -> Play:
    """Runs the command."""
    return lambda *further: bench(*said(*further))
