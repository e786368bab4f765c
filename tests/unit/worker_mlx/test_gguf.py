"""GGUF files on MLX: the same model as in the Hub's layout."""

from pathlib import Path

import numpy as np
import pytest

from kakeya_worker.conformance.tools.checkpoints import VARIANTS, Variant
from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.mlx_backend import MlxVerifier
from tests import gguf_checkpoint

GEOMETRY = LaneGeometry(sink=4, window=64, chunk=32)
QWEN3, SMOLLM = (next(each for each in VARIANTS if each.name == name) for name in ("qwen3", "smollm"))


def logits(place: Path, tokens: tuple[int, ...]) -> np.ndarray:
    verifier = MlxVerifier(str(place), weights="auto", kv_dtype="auto", num_threads=1, cache_directory=None)
    verifier.allocate(GEOMETRY, 1)
    verifier.forward([Lane(GEOMETRY, 0, sink_window(SessionOptions(), GEOMETRY)).row(tokens)])
    return verifier.logits([0])[0]


@pytest.mark.parametrize("variant", [QWEN3, SMOLLM], ids=lambda variant: variant.name)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_are_those_of_the_hubs_checkpoint(tmp_path: Path, variant: Variant, dtype: str) -> None:
    kind = gguf_checkpoint.gguf_type(dtype)
    file = gguf_checkpoint.write(tmp_path / "model.gguf", variant.config, variant.tensors(dtype), kind)
    found = logits(file, variant.history(24))
    np.testing.assert_array_equal(found, logits(variant.write(tmp_path / "hub", dtype), variant.history(24)))
    assert np.ptp(found) > 0.1


def test_blocks_become_floats(tmp_path: Path) -> None:
    file = gguf_checkpoint.write(tmp_path / "model.gguf", QWEN3.config, QWEN3.tensors(), "Q8_0")
    verifier = MlxVerifier(str(file), weights="bfloat16", kv_dtype="auto", num_threads=1, cache_directory=None)
    assert (verifier.facts.weights, verifier.facts.kv_dtype) == ("bfloat16", "bfloat16")
    near, true = logits(file, QWEN3.history(24)), logits(QWEN3.write(tmp_path / "hub"), QWEN3.history(24))
    assert 0 < np.abs(near - true).max() < 0.2 * np.abs(true).max()


def test_a_file_that_lacks_a_tensor_is_refused(tmp_path: Path) -> None:
    lacking = {name: tensor for name, tensor in QWEN3.tensors().items() if "layers.1.mlp.up_proj" not in name}
    file = gguf_checkpoint.write(tmp_path / "model.gguf", QWEN3.config, lacking)
    with pytest.raises(ModelRefused, match=r"model\.gguf cannot be loaded: .*up_proj"):
        logits(file, (1, 2))
