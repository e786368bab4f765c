"""The weights of `make bench-engine` in both formats, kept between runs.

Random weights cost as much to run as trained ones; everybody gets the same, rounded to bfloat16 before anything else.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks import llama_cpp_environment as llama_cpp
from tests.benchmarks.logged_command import say
from tests.checkpoints import save_random_qwen3


@dataclass(frozen=True)
class EngineCheckpoint:
    """One model in both formats.

    Attributes:
        directory: a checkpoint of transformers, bfloat16.
        gguf: in it, with Q8_0 matrices.
    """

    directory: Path
    gguf: Path

    @property
    def int8_weight_bytes(self) -> int:
        """What a decode step reads of int8 weights: all matrices once, an embedding only where it is the head, too."""
        shape = json.loads((self.directory / "config.json").read_text())
        hidden, heads = shape["hidden_size"], shape["head_dim"] * shape["num_attention_heads"]
        kv_heads = shape["head_dim"] * shape["num_key_value_heads"]
        layer = hidden * (2 * heads + 2 * kv_heads + 3 * shape["intermediate_size"])
        return int(shape["num_hidden_layers"] * layer + shape["vocab_size"] * hidden)


def kept(directory: Path, shape: Mapping[str, Any]) -> EngineCheckpoint:
    """The checkpoint of a shape, made where it is missing.

    Raises:
        LlamaCppFailed: the GGUF file could not be written.
    """
    name = hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:12]
    found = EngineCheckpoint(directory / name, directory / name / "Q8_0.gguf")
    if not found.gguf.is_file():
        say(f"making the weights in {found.directory}")
        shutil.rmtree(found.directory, ignore_errors=True)
        llama_cpp.prepare_converter()
        part = found.directory.with_suffix(".part")  # what broke off is begun again
        shutil.rmtree(part, ignore_errors=True)
        save_random_qwen3(part, dtype=torch.bfloat16, **shape)
        llama_cpp.gguf(part, "Q8_0")
        part.rename(found.directory)
    return found


def drop_from_file_cache(files: Iterable[Path]) -> None:
    """Asks the system to read the files from the disk when they are next needed."""
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
