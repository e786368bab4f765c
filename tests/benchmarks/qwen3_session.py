"""`kakeya bench session` on a model of Qwen3-0.6B's shape, with random weights, at sink 4 and window 64.

    python -m tests.benchmarks.qwen3_session [FLAGS OF THE BENCH]

A full session has exactly 7,798,784 live bytes then: 28 layers x 8 heads x 128 x 2 bytes x 2 are 114,688 a token,
for 68 tokens.
"""

import sys
import tempfile
from pathlib import Path

import torch

from tests.benchmarks import local_bench
from tests.checkpoints import save_random_qwen3

SHAPE = {
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40_960,
    "tie_word_embeddings": True,
}
TURN = ("--random-tokens", "30", "--max-tokens", "8")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="kakeya-qwen3-") as directory:
        model = Path(directory) / "qwen3-0.6b-shape"
        print("making the model", file=sys.stderr, flush=True)
        save_random_qwen3(model, dtype=torch.bfloat16, **SHAPE)
        up = f"--model {model} --sink 4 --window 64"
        return local_bench.run(up, "session", ["--turns", "480", "--config", str(model), *TURN, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
