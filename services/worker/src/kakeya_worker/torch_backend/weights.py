"""A checkpoint's tensors, in one or several safetensors files."""

import json
from collections.abc import Collection
from math import prod
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.output_head import EMBEDDING, HEAD, plain_names

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"


class Weights:
    """The tensors of a checkpoint's language model, mapped one at a time and in the checkpoint's own types.

    Raises ModelRefused where the files are missing or damaged.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file_of = {name: file for file in self._read_index() for name in _shapes(file)}
        self._stored_name = plain_names(self._file_of)

    @property
    def files(self) -> list[Path]:
        """Those that hold tensors, sorted by name."""
        return sorted(set(self._file_of.values()))

    @property
    def names(self) -> Collection[str]:
        """Of all tensors, as they are asked for."""
        return self._stored_name.keys()

    def __call__(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """One tensor. Raises ModelRefused where it is missing, of another shape, or no float."""
        tensor = self._mapped(name)
        if not tensor.is_floating_point():
            raise ModelRefused(f"tensor {name} holds {tensor.dtype}: quantized weights cannot run")
        if tuple(tensor.shape) != shape:
            raise ModelRefused(f"tensor {name} has shape {tuple(tensor.shape)}, the config demands {shape}")
        return tensor

    @property
    def dtype(self) -> str:
        """Of the embedding, as config.json would say it: "float32" or "bfloat16", among others. Raises ModelRefused."""
        return str(self._mapped(f"{EMBEDDING}.weight").dtype).removeprefix("torch.")

    def head_is_embedding(self) -> bool:
        """Whether the output head holds the same numbers, in the same type. Raises ModelRefused."""
        head, embedding = (self._mapped(f"{name}.weight") for name in (HEAD, EMBEDDING))
        return head.dtype == embedding.dtype and torch.equal(head, embedding)

    def num_weights(self) -> int:
        """How many numbers all matrices hold, those included that a model may not use."""
        return sum(prod(shape) for file in self.files for shape in _shapes(file).values() if len(shape) == 2)

    def _mapped(self, name: str) -> torch.Tensor:
        if name not in self._stored_name:
            raise ModelRefused(f"{self._directory} holds no tensor {name}")
        stored = self._stored_name[name]
        try:
            with safe_open(self._file_of[stored], framework="pt") as file:
                tensor: torch.Tensor = file.get_tensor(stored)
        except (OSError, SafetensorError) as error:
            raise ModelRefused(f"{self._file_of[stored]} cannot be read: {error}") from error
        return tensor

    def _read_index(self) -> list[Path]:
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
