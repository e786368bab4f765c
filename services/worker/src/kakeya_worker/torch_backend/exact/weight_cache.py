"""Quantized weights on disk, so that a model is converted once and mapped ever after."""

import os
import tempfile
from pathlib import Path

import structlog
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from kakeya_worker.torch_backend.exact.quantization import QuantizedMatrix

_log = structlog.get_logger()
_FIELDS = {"values": torch.int8, "scales": torch.float32, "exponents": torch.int8}


class WeightCache:
    """The matrices of one model in one safetensors file; a missing or damaged one is written anew.

    Args:
        path: of the file; None to keep nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._found = self._read() if path is not None and path.is_file() else {}
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
        matrices = self._found | self._added
        tensors = {f"{name}/{field}": getattr(matrix, field) for name, matrix in matrices.items() for field in _FIELDS}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self._path.parent) as directory:
                temporary = Path(directory, self._path.name)
                save_file(tensors, temporary)
                with temporary.open("rb") as file:
                    os.fsync(file.fileno())
                temporary.replace(self._path)
        except (OSError, SafetensorError) as error:
            _log.warning("int8 weights are not kept; the next start converts them again", error=str(error))
        else:
            _log.info("int8 weights kept for the next start", path=str(self._path))

    def _read(self) -> dict[str, QuantizedMatrix]:
        """Maps the file; nothing is read until it is used."""
        try:
            with safe_open(self._path, framework="pt") as file:
                names = {key.rpartition("/")[0] for key in file.keys()}  # noqa: SIM118  # not a mapping
                found = {
                    name: QuantizedMatrix(**{field: file.get_tensor(f"{name}/{field}") for field in _FIELDS})
                    for name in names
                }
        except (OSError, SafetensorError) as error:
            _log.warning("damaged int8 weights are converted again", path=str(self._path), error=str(error))
            return {}
        return {name: matrix for name, matrix in found.items() if _is_sound(matrix)}


def _is_sound(matrix: QuantizedMatrix) -> bool:
    """Whether types and shapes belong together."""
    has_types = all(getattr(matrix, field).dtype is dtype for field, dtype in _FIELDS.items())
    return has_types and tuple(matrix.values.shape) == (*matrix.scales.shape, *matrix.exponents.shape)
