"""The model that Kakeya and its rivals run: a Qwen3 of random weights, and the same in llama.cpp's format.

    python -m tests.benchmarks.rival_checkpoint DIRECTORY

Random weights cost as much to run as trained ones, and nothing is downloaded.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks import llama_cpp_environment as llama_cpp
from tests.benchmarks.llama_cpp_environment import LlamaCppFailed
from tests.checkpoints import save_random_qwen3

SHAPE: dict[str, Any] = {
    "vocab_size": 32_000,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 40_960,
    "tie_word_embeddings": True,
}
"""Of 54 million parameters, which two cores can play through a long conversation."""


@dataclass(frozen=True)
class RivalCheckpoint:
    """One model in both formats.

    Attributes:
        directory: a checkpoint of transformers, float32.
        gguf: in it, with Q8_0 matrices.
    """

    directory: Path
    gguf: Path


def make(directory: Path, **overrides: Any) -> RivalCheckpoint:
    """Writes both; the weights are the same at every call.

    Args:
        overrides: of SHAPE, or other fields of the config.

    Raises:
        LlamaCppFailed: the GGUF file could not be written.
    """
    llama_cpp.prepare_converter()
    save_random_qwen3(directory, **{**SHAPE, **overrides})
    return RivalCheckpoint(directory, llama_cpp.gguf(directory, "Q8_0"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="where to write it")
    arguments = parser.parse_args()
    try:
        made = make(arguments.directory)
    except LlamaCppFailed as error:
        print(f"cannot make the checkpoint: {error}", file=sys.stderr)
        return 2
    print(made.gguf)
    return 0


if __name__ == "__main__":
    sys.exit(main())
