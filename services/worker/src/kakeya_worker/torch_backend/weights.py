"""A checkpoint's tensors, whatever files they lie in."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.gguf.block_integers import BlockIntegers, BlockType
from kakeya_worker.models.output_head import EMBEDDING, HEAD


class Scales(NamedTuple):
    """Those of all blocks of a matrix; `BlockIntegers` says what they mean.

    Attributes:
        of_blocks: float16 [out_features, blocks].
        offsets: float16 [out_features, blocks], or None.
        of_runs: int8 [out_features, blocks * runs], or None.
        minima: int8 [out_features, blocks * runs], or None.
    """

    of_blocks: Tensor
    offsets: Tensor | None
    of_runs: Tensor | None
    minima: Tensor | None


@dataclass(frozen=True)
class BlockMatrix:
    """Rows of blocks.

    Attributes:
        weights: uint8 [out_features, in_features], as they are stored: `kind.zero` too large.
    """

    kind: BlockType
    weights: Tensor
    scales: Scales

    @property
    def shape(self) -> tuple[int, int]:
        """(out_features, in_features)."""
        return self.weights.shape[0], self.weights.shape[1]

    def rows(self, some: slice) -> "BlockMatrix":
        """A view of some of its rows."""
        offsets, of_runs, minima = (None if each is None else each[some] for each in self.scales[1:])
        return BlockMatrix(self.kind, self.weights[some], Scales(self.scales.of_blocks[some], offsets, of_runs, minima))

    @property
    def is_finite(self) -> bool:
        """Whether all its numbers are."""
        halves = (self.scales.of_blocks, self.scales.offsets)
        return all(bool(each.isfinite().all()) for each in halves if each is not None)


class Weights(ABC):
    """The tensors of a checkpoint's language model, read one at a time and in the checkpoint's own types.

    Raises ModelRefused where the files are missing or damaged.
    """

    @property
    @abstractmethod
    def files(self) -> list[Path]:
        """Those that hold tensors, sorted by name."""

    @property
    @abstractmethod
    def names(self) -> Collection[str]:
        """Of all tensors, as they are asked for."""

    @abstractmethod
    def num_weights(self) -> int:
        """How many numbers all matrices hold, those included that a model may not use."""

    @abstractmethod
    def _read(self, name: str) -> torch.Tensor:
        """One tensor as it is. Raises ModelRefused where it is missing."""

    def __call__(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """One tensor. Raises ModelRefused where it is missing, of another shape, or no float."""
        tensor = self._read(name)
        if not tensor.is_floating_point():
            raise ModelRefused(f"tensor {name} holds {tensor.dtype}: quantized weights cannot run")
        check_shape(name, tuple(tensor.shape), shape)
        return tensor

    @property
    def has_blocks(self) -> bool:
        """Whether some matrices are GGUF's blocks, which `blocks` hands out as they are."""
        return False

    def is_blocks(self, name: str) -> bool:
        """Whether that matrix is. Raises ModelRefused where it is missing."""
        return False

    def blocks(self, name: str, shape: tuple[int, int]) -> BlockMatrix | None:
        """A matrix whose numbers are GGUF's blocks; None where they are not. Raises ModelRefused as `__call__` does."""
        return None

    @property
    def dtype(self) -> str:
        """Of the embedding, as config.json would say it: "float32" or "bfloat16", among others. Raises ModelRefused."""
        return str(self._read(f"{EMBEDDING}.weight").dtype).removeprefix("torch.")

    def head_is_embedding(self) -> bool:
        """Whether the output head holds the same numbers, in the same type. Raises ModelRefused."""
        head, embedding = (self._read(f"{name}.weight") for name in (HEAD, EMBEDDING))
        return head.dtype == embedding.dtype and torch.equal(head, embedding)


def check_shape(name: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Raises ModelRefused."""
    if found != wanted:
        raise ModelRefused(f"tensor {name} has shape {found}, the config demands {wanted}")


def block_matrix(kind: BlockType, found: BlockIntegers, out_features: int) -> BlockMatrix:
    """Of the blocks of a tensor, row after row."""

    def rows(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.require(array, requirements="W")).reshape(out_features, -1)

    def rows_if_any(array: NDArray[Any] | None) -> Tensor | None:
        return None if array is None else rows(array)

    others = (rows_if_any(each) for each in (found.offsets, found.run_scales, found.minima))
    return BlockMatrix(kind, rows(found.weights), Scales(rows(found.scales), *others))
