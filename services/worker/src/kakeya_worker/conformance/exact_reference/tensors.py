"""Tensors of a safetensors file as float32, bfloat16 included, for which numpy has no type."""

import json
from pathlib import Path

import numpy as np

from kakeya_worker.conformance.exact_reference.formulas import Floats

_TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def read_tensors(path: Path) -> dict[str, Floats]:
    """All tensors by name; the format is 8 bytes of header length, a JSON header, and the data."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    return {name: _tensor(content[start:], **entry) for name, entry in header.items()}


def _tensor(data: bytes, dtype: str, shape: list[int], data_offsets: list[int]) -> Floats:
    values = np.frombuffer(data[slice(*data_offsets)], _TYPES[dtype]).reshape(shape)
    if dtype == "BF16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)
