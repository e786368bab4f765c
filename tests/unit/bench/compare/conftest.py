from collections.abc import Iterator

import pytest

from tests.unit.bench.compare.comparing import SHORT
from tests.unit.bench.compare.scripted_rival import ScriptedRival, scripted_rival


@pytest.fixture
def rival() -> Iterator[ScriptedRival]:
    with scripted_rival() as rival:
        yield rival


@pytest.fixture
def other() -> Iterator[ScriptedRival]:
    with scripted_rival() as rival:
        yield rival


@pytest.fixture
def flags(flags: list[str]) -> list[str]:
    """Short turns."""
    return [*flags, *SHORT]
