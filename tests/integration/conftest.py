"""The runtime that most integration tests share; a test that breaks something makes its own."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import kakeya
from tests.integration.http_stack import HttpStack, http_stack
from tests.integration.processes import PATIENT, Runtime, runtime
from tests.random_checkpoint import save_random_checkpoint


@pytest.fixture(scope="session", autouse=True)
def lasting_leases() -> Iterator[None]:
    """What is to lapse, a test has lapse (`Runtime.lapse`)."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in PATIENT.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session", autouse=True)
def forked_services() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runtime, "forks", True)
        yield


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_checkpoint(tmp_path_factory.mktemp("model") / "demo")


@pytest.fixture(scope="session")
def shared_runtime(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """Two workers of eight lanes each."""
    with runtime(model, tmp_path_factory.mktemp("logs")) as made:
        yield made


@pytest.fixture
async def client(shared_runtime: Runtime) -> AsyncIterator[kakeya.AsyncClient]:
    async with kakeya.AsyncClient(shared_runtime.address) as client:
        yield client


@pytest.fixture(scope="session")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpStack]:
    """The stack that most tests of HTTP share; a test that breaks something mends it."""
    with http_stack(tmp_path_factory.mktemp("http")) as made:
        yield made
