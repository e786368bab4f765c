"""A model whose matrices are GGUF's blocks, in the reference of exact mode: docs/numerics.md once more, in numpy."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kakeya_worker.conformance.exact_reference import ExactReference
from kakeya_worker.conformance.exact_reference.formulas import Floats
from kakeya_worker.conformance.exact_reference.model import Linear
from kakeya_worker.conformance.exact_reference.quantization import quantize_table
from kakeya_worker.models.gguf.gguf_tensors import GgufTensors
from tests.unit.worker.torch_backend.exact.gguf_blocks.blocks_reference import BlocksLinear


@dataclass(frozen=True)
class Parts:
    """Matrices over the same input, whose outputs come one behind the other."""

    parts: Sequence[Linear]

    def __call__(self, x: Floats) -> Floats:
        """[in_features] -> [out_features]."""
        return np.concatenate([part(x) for part in self.parts])

    def row(self, index: int) -> Floats:
        """Of the only one."""
        (part,) = self.parts
        return part.row(index)


class BlocksModel(ExactReference):
    """Of a Qwen3, both as a checkpoint, for its vectors, and as a GGUF file.

    Args:
        directory: the checkpoint.
        path: the file.
    """

    def __init__(self, directory: Path, path: Path, kv_dtype: str = "bfloat16") -> None:
        self._file = GgufTensors(path)
        super().__init__(directory, kv_dtype)
        self.embedding = self._parts("model.embed_tokens")
        self.head = self.embedding if self.config["tie_word_embeddings"] else self._parts("lm_head")

    def _linear(self, prefix: str, *names: str) -> Linear:
        return self._parts(*(f"{prefix}.{name}" for name in names))

    def _parts(self, *names: str) -> Parts:
        return Parts([self._part(f"{name}.weight", f"{name}.bias") for name in names])

    def _part(self, name: str, bias: str) -> Linear:
        found = self._file.read_blocks(name)
        if found is None:
            return quantize_table(self._file.read(name).astype(np.float32))
        return BlocksLinear(*found, self._file.shape(name)[0], self._tensors.get(bias))
