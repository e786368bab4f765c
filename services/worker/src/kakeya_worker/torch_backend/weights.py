"""A checkpoint's tensors, whatever files they lie in."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from pathlib import Path

import torch

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.output_head import EMBEDDING, HEAD


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
        if tuple(tensor.shape) != shape:
            raise ModelRefused(f"tensor {name} has shape {tuple(tensor.shape)}, the config demands {shape}")
        return tensor

    @property
    def dtype(self) -> str:
        """Of the embedding, as config.json would say it: "float32" or "bfloat16", among others. Raises ModelRefused."""
        return str(self._read(f"{EMBEDDING}.weight").dtype).removeprefix("torch.")

    def head_is_embedding(self) -> bool:
        """Whether the output head holds the same numbers, in the same type. Raises ModelRefused."""
        head, embedding = (self._read(f"{name}.weight") for name in (HEAD, EMBEDDING))
        return head.dtype == embedding.dtype and torch.equal(head, embedding)
