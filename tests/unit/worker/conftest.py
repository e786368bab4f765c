"""The random checkpoint as a model for the worker's own tests: no more than the worker's distribution is needed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
import torch

from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.torch_backend import TorchVerifier
from tests.random_checkpoint import save_random_checkpoint
from tests.service_logs import plain_logs
from tests.unit.worker.engine_calls import NUM_LANES, SINK, WINDOW

plain_logs()
UNTOUCHED_LOGS = structlog.get_config()


@pytest.fixture(autouse=True)
def untouched_logs() -> Iterator[None]:
    """A command configures structlog for its process; the next test finds it as if none had run."""
    yield
    structlog.configure(**UNTOUCHED_LOGS)


@pytest.fixture(scope="session")
def random_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_checkpoint(tmp_path_factory.mktemp("checkpoint") / "random")


@pytest.fixture
def verifier(random_checkpoint: Path) -> TorchVerifier:
    """A loaded model without a slab; on one thread, where small models run fastest."""
    verifier = TorchVerifier(
        str(random_checkpoint), weights="float32", kv_dtype="auto", num_threads=1, cache_directory=None
    )
    assert torch.get_num_threads() == 1
    return verifier


@pytest.fixture
def engine(verifier: TorchVerifier) -> Iterator[Engine]:
    """A running engine without sessions."""
    engine = Engine(verifier, LaneGeometry(SINK, WINDOW, chunk=32), NUM_LANES, step_tokens=64)
    engine.start()
    yield engine
    engine.shut_down()
    assert not engine.crashed.done()
