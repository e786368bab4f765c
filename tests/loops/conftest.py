"""A stack with a model of each family, and each client where it is installed."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loops.families import FAMILIES
from tests.loops.results import Results
from tests.loops.stage import Stage, stage
from tests.loops.talking import CLIENTS, Client, Driver, driver

WINDOW = 512
"""Conversations outgrow it."""


@pytest.fixture(scope="session")
def results() -> Iterator[Results]:
    """Kept in the file that KAKEYA_TEST_LOOPS names."""
    made = Results()
    yield made
    if path := os.environ.get("KAKEYA_TEST_LOOPS"):
        made.save(Path(path))


@pytest.fixture(scope="session")
def made_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("stage"), FAMILIES, WINDOW) as made:
        yield made


@pytest.fixture(scope="module", params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = request.param
    return found


@pytest.fixture(scope="module")
def talker(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """The client's driver."""
    command, directory = client.command()
    with driver(command, directory, tmp_path_factory.mktemp("driver") / "log") as made:
        yield made
