"""Quantized weights on disk, so that a model is converted once and mapped ever after."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import structlog
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from kakeya_worker.torch_backend.exact.quantization import QuantizedMatrix
from kakeya_worker.torch_backend.replacing import replacing

_log = structlog.get_logger()
_FIELDS = ("values", "scales", "exponents")


class WeightCache:
    """The matrices of one model in one safetensors file; a missing or damaged one is written anew.

    Args:
        path: of the file; None to keep nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._found = _read(path) if path is not None else {}
        self._added: dict[str, QuantizedMatrix] = {}

    def get(self, name: str, shape: tuple[int, int]) -> QuantizedMatrix | None:
        """A matrix [out_features, in_features], if it is there and of that shape."""
        matrix = self._found.get(name)
        return matrix if matrix is not None and tuple(matrix.values.shape) == shape else None

    def put(self, name: str, matrix: QuantizedMatrix) -> QuantizedMatrix:
        self._added[name] = matrix
        return matrix

    def write(self) -> None:
        """Writes what was added, and all that was found beside it, as a whole or not at all.

        Not being able to is no error.
        """
        if self._path is None or not self._added:
            return
        tensors = {
            f"{name}/{field}": getattr(matrix, field)
            for name, matrix in (self._found | self._added).items()
            for field in _FIELDS
        }
        try:
            with replacing(self._path) as temporary:
                save_file(tensors, temporary, metadata={"sha256": _checksum(tensors)})
        except (OSError, SafetensorError) as error:
            _log.warning("int8 weights are not kept; the next start converts them again", error=str(error))
        else:
            _log.info("int8 weights kept for the next start", path=str(self._path))


def _read(path: Path) -> dict[str, QuantizedMatrix]:
    """Maps the file and compares its checksum; empty where it is missing or damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a mapping
            checksum = (file.metadata() or {}).get("sha256")
        if checksum != _checksum(tensors):
            raise ValueError("the checksum does not fit")
        names = {name.rpartition("/")[0] for name in tensors}
        return {name: QuantizedMatrix(**{f: tensors[f"{name}/{f}"] for f in _FIELDS}) for name in names}
    except FileNotFoundError:
        return {}
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        _log.warning("damaged int8 weights are converted again", path=str(path), error=str(error))
        return {}


def _checksum(tensors: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 over names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
