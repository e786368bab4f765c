"""The demo checkpoint as a model for the worker's own tests: no more than the worker's distribution is needed."""

from pathlib import Path

import pytest
import torch

from kakeya_worker.demo_checkpoint.checkpoint import ensure_checkpoint
from kakeya_worker.torch_backend import TorchVerifier


@pytest.fixture(scope="session")
def demo_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint") / "demo"
    ensure_checkpoint(directory)
    return directory


@pytest.fixture
def verifier(demo_checkpoint: Path) -> TorchVerifier:
    """A loaded model without a slab; on one thread, where small models run fastest."""
    verifier = TorchVerifier(str(demo_checkpoint), dtype="auto", num_threads=1)
    assert torch.get_num_threads() == 1
    return verifier
