"""Checkpoints in Hugging Face's layout: config.json beside one or several safetensors files."""

import json
from math import prod
from pathlib import Path
from typing import Any

import structlog
import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open

from kakeya_shared.tokenizer_digest import TokenizerError, tokenizer_digest
from kakeya_worker.engine.verifier import ModelRefused

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_log = structlog.get_logger()


def locate(model: str) -> Path:
    """The local directory of a model: itself, or a hub id's snapshot, downloaded where needed.

    Raises:
        ModelRefused: there is neither.
    """
    directory = Path(model).expanduser()
    if directory.is_dir():
        return directory
    if directory.is_absolute() or model.startswith((".", "~")):
        raise ModelRefused(f"{model} is not a directory")
    try:
        return Path(snapshot_download(model, allow_patterns=["*.json", "*.safetensors"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelRefused(
            f"{model!r} is neither a local directory nor a model that the hub hands out: {reason}"
        ) from error


def read_config(directory: Path) -> dict[str, Any]:
    """config.json as it stands. Raises ModelRefused."""
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text())
    except OSError as error:
        raise ModelRefused(f"{directory} holds no readable config.json") from error
    except (ValueError, RecursionError) as error:
        raise ModelRefused(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ModelRefused(f"{path} is not a JSON object")
    return config


def digest_tokenizer(directory: Path) -> str:
    """`tokenizer_digest` of a checkpoint; "", too, where its tokenizer cannot be read: tokens need none."""
    try:
        return tokenizer_digest(directory)
    except TokenizerError as error:
        _log.warning("clients cannot tell whether their tokenizer is this model's", error=str(error))
        return ""


class Weights:
    """The tensors of a checkpoint, mapped one at a time and in the checkpoint's own types.

    Raises ModelRefused where the files are missing or damaged.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file_of = self._read_index()

    @property
    def files(self) -> list[Path]:
        """Those that hold tensors, sorted by name."""
        return sorted(set(self._file_of.values()))

    def __call__(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """One tensor. Raises ModelRefused where it is missing, of another shape, or no float."""
        if name not in self._file_of:
            raise ModelRefused(f"{self._directory} holds no tensor {name}")
        try:
            with safe_open(self._file_of[name], framework="pt") as file:
                tensor: torch.Tensor = file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise ModelRefused(f"{self._file_of[name]} cannot be read: {error}") from error
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
