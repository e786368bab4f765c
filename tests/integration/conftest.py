"""The runtime that most integration tests share; a test that breaks something makes its own."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import kakeya
from tests.integration.http_stack import HttpStack, http_stack
from tests.integration.processes import PATIENT, Runtime, runtime
from tests.random_checkpoint import save_random_checkpoint


@contextmanager
def as_here() -> Iterator[None]:
    """Services begin as forks, and their routers are patient: what is to lapse, a test has lapse (`Runtime.lapse`).

    For a module at a time: what is set for a session reaches tests of other folders that come after these.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name, value in PATIENT.items():
            patch.setenv(name, value)
        patch.setattr(Runtime, "forks", True)
        yield


@pytest.fixture(scope="module", autouse=True)
def _as_here() -> Iterator[None]:
    with as_here():
        yield


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_checkpoint(tmp_path_factory.mktemp("model") / "demo")


@pytest.fixture(scope="session")
def shared_runtime(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """Two workers of eight lanes each."""
    with ExitStack() as stack:
        with as_here():
            made = stack.enter_context(runtime(model, tmp_path_factory.mktemp("logs")))
        yield made


@pytest.fixture
async def client(shared_runtime: Runtime) -> AsyncIterator[kakeya.AsyncClient]:
    async with kakeya.AsyncClient(shared_runtime.address) as client:
        yield client


@pytest.fixture(scope="session")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpStack]:
    """The stack that most tests of HTTP share; a test that breaks something mends it."""
    with ExitStack() as stack:
        with as_here():
            made = stack.enter_context(http_stack(tmp_path_factory.mktemp("http")))
        yield made
