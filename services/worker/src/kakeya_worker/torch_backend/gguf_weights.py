"""A checkpoint's tensors in GGUF files."""

from collections.abc import Collection
from pathlib import Path

import torch

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.gguf.gguf_tensors import GgufTensors
from kakeya_worker.torch_backend.weights import BlockMatrix, Weights, block_matrix, check_shape


class GgufWeights(Weights):
    """Copied one at a time; blocks become float32. Raises ModelRefused where the files are missing or damaged.

    Args:
        path: of the file, or of one of several.
    """

    def __init__(self, path: Path) -> None:
        self._tensors = GgufTensors(path)

    @property
    def files(self) -> list[Path]:
        return self._tensors.files

    @property
    def names(self) -> Collection[str]:
        return self._tensors.names

    @property
    def dtype(self) -> str:
        return self._tensors.dtype

    def head_is_embedding(self) -> bool:
        return self._tensors.head_is_embedding()

    def num_weights(self) -> int:
        return self._tensors.num_weights

    @property
    def has_blocks(self) -> bool:
        return self._tensors.has_blocks

    def is_blocks(self, name: str) -> bool:
        self._check_has(name)
        return self._tensors.block_type(name) is not None

    def blocks(self, name: str, shape: tuple[int, int]) -> BlockMatrix | None:
        self._check_has(name)
        found = self._tensors.read_blocks(name)
        if found is None:
            return None
        check_shape(name, self._tensors.shape(name), shape)
        return block_matrix(*found, shape[0])

    def _check_has(self, name: str) -> None:
        if name not in self._tensors.names:
            raise ModelRefused(f"{self.files[0]} holds no tensor {name}")

    def _read(self, name: str) -> torch.Tensor:
        self._check_has(name)
        tensor = torch.from_numpy(self._tensors.read(name))
        return tensor.view(torch.bfloat16) if tensor.dtype == torch.uint16 else tensor
