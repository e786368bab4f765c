"""A checkpoint's tensors in one or several safetensors files."""

import json
from collections.abc import Collection
from math import prod
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.output_head import plain_names
from kakeya_worker.torch_backend.weights import Weights

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"


class SafetensorsWeights(Weights):
    """Mapped one at a time. Raises ModelRefused where the files are missing or damaged.

    Args:
        directory: of the checkpoint.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file_of = {name: file for file in self._shards() for name in _shapes(file)}
        self._stored_name = plain_names(self._file_of)

    @property
    def files(self) -> list[Path]:
        return sorted(set(self._file_of.values()))

    @property
    def names(self) -> Collection[str]:
        return self._stored_name.keys()

    def num_weights(self) -> int:
        return sum(prod(shape) for file in self.files for shape in _shapes(file).values() if len(shape) == 2)

    def _read(self, name: str) -> torch.Tensor:
        if name not in self._stored_name:
            raise ModelRefused(f"{self._directory} holds no tensor {name}")
        stored = self._stored_name[name]
        try:
            with safe_open(self._file_of[stored], framework="pt") as file:
                tensor: torch.Tensor = file.get_tensor(stored)
        except (OSError, SafetensorError) as error:
            raise ModelRefused(f"{self._file_of[stored]} cannot be read: {error}") from error
        return tensor

    def _shards(self) -> list[Path]:
        """The files. Which tensors are in them they say themselves."""
        index = self._directory / _INDEX
        if not index.is_file():
            return [self._directory / _SINGLE]
        try:
            return sorted({self._directory / file for file in json.loads(index.read_text())["weight_map"].values()})
        except (AttributeError, KeyError, OSError, RecursionError, TypeError, ValueError) as error:
            raise ModelRefused(f"{index} cannot be read: {error}") from error


def _shapes(file: Path) -> dict[str, list[int]]:
    """Of all tensors by name. Raises ModelRefused."""
    try:
        with safe_open(file, framework="pt") as tensors:
            names = tensors.keys()  # no mapping's
            return {name: tensors.get_slice(name).get_shape() for name in names}
    except (OSError, SafetensorError) as error:
        raise ModelRefused(f"{file} cannot be read: {error}") from error
