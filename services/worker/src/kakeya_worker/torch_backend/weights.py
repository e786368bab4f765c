"""A checkpoint's tensors, in one or several safetensors files."""

import json
from math import prod
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from kakeya_worker.engine.verifier import ModelRefused
from kakeya_worker.models.language_part import name_of

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"


class Weights:
    """The tensors of a checkpoint's language model, mapped one at a time and in the checkpoint's own types.

    Raises ModelRefused where the files are missing or damaged.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file_of = self._read_index()
        self._stored_name = {name_of(stored): stored for stored in self._file_of}

    @property
    def files(self) -> list[Path]:
        """Those that hold tensors, sorted by name."""
        return sorted(set(self._file_of.values()))

    def __call__(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """One tensor. Raises ModelRefused where it is missing, of another shape, or no float."""
        if name not in self._stored_name:
            raise ModelRefused(f"{self._directory} holds no tensor {name}")
        stored = self._stored_name[name]
        try:
            with safe_open(self._file_of[stored], framework="pt") as file:
                tensor: torch.Tensor = file.get_tensor(stored)
        except (OSError, SafetensorError) as error:
            raise ModelRefused(f"{self._file_of[stored]} cannot be read: {error}") from error
        if not tensor.is_floating_point():
            raise ModelRefused(f"tensor {name} holds {tensor.dtype}: quantized weights cannot run")
        if tuple(tensor.shape) != shape:
            raise ModelRefused(f"tensor {name} has shape {tuple(tensor.shape)}, the config demands {shape}")
        return tensor

    def num_weights(self) -> int:
        """How many numbers all matrices hold, those included that a model may not use."""
        return sum(prod(shape) for file in self.files for shape in _shapes(file) if len(shape) == 2)

    def _read_index(self) -> dict[str, Path]:
        index = self._directory / _INDEX
        single = self._directory / _SINGLE
        try:
            if index.is_file():
                names = json.loads(index.read_text())["weight_map"]
                return {name: self._directory / file for name, file in names.items()}
            with safe_open(single, framework="pt") as file:
                return dict.fromkeys(file.keys(), single)
        except (AttributeError, KeyError, OSError, RecursionError, SafetensorError, TypeError, ValueError) as error:
            raise ModelRefused(f"{self._directory} holds no readable {_SINGLE} or {_INDEX}: {error}") from error


def _shapes(file: Path) -> list[list[int]]:
    """Of all tensors. Raises ModelRefused."""
    try:
        with safe_open(file, framework="pt") as tensors:
            return [tensors.get_slice(name).get_shape() for name in tensors.keys()]  # noqa: SIM118  # not a mapping
    except (OSError, SafetensorError) as error:
        raise ModelRefused(f"{file} cannot be read: {error}") from error
