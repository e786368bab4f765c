"""The random checkpoint as a model of the MLX backend, and that quantized by mlx-lm."""

from pathlib import Path

import pytest

from kakeya_worker.mlx_backend import MlxVerifier
from tests.random_checkpoint import save_random_checkpoint


def load(model: Path, weights: str = "auto", kv_dtype: str = "auto") -> MlxVerifier:
    return MlxVerifier(str(model), weights=weights, kv_dtype=kv_dtype, num_threads=1, cache_directory=None)


@pytest.fixture(scope="session")
def random_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_checkpoint(tmp_path_factory.mktemp("checkpoint") / "random")


@pytest.fixture
def verifier(random_checkpoint: Path) -> MlxVerifier:
    """A loaded model without a slab."""
    return load(random_checkpoint)
