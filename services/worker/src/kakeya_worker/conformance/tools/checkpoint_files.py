"""Writes checkpoints as they lie on the Hugging Face Hub, without a library: numpy knows no bfloat16.

Format: https://huggingface.co/docs/safetensors.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.conformance.tools.random_weights import bits_of

Tensors = dict[str, NDArray[np.float32]]

_SAFETENSORS_TYPES = {"float32": "F32", "bfloat16": "BF16"}


def write_config(directory: Path, config: Mapping[str, Any]) -> None:
    (directory / "config.json").write_text(json.dumps(config, indent=2))


def write_tensors(directory: Path, tensors: Tensors, dtype: str = "float32", num_files: int = 1) -> None:
    """Writes the weights into one file, or several and their index."""
    if num_files == 1:
        _write_file(directory / "model.safetensors", tensors, dtype)
        return
    file_of = {
        name: f"model-{number % num_files + 1:05}-of-{num_files:05}.safetensors" for number, name in enumerate(tensors)
    }
    for file in dict.fromkeys(file_of.values()):
        part = {name: tensor for name, tensor in tensors.items() if file_of[name] == file}
        _write_file(directory / file, part, dtype)
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": file_of}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def _write_file(path: Path, tensors: Tensors, dtype: str) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, tensor in tensors.items():
        bits = bits_of(tensor)
        content = bits.astype("<u4") if dtype == "float32" else (bits >> 16).astype("<u2")
        offsets = [len(data), len(data) + content.nbytes]
        header[name] = {"dtype": _SAFETENSORS_TYPES[dtype], "shape": tensor.shape, "data_offsets": offsets}
        data += content.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the tensors are aligned
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
