"""Checkpoints and references of the verifier's conformance tests, made once a run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.checkpoints import make_qwen3
from tests.conformance.reference import Array, Reference

SINK, WINDOW = 4, 64
VOCAB_SIZE = 512
NUM_TOKENS = 600  # 8.8 x (sink + window), and beyond the checkpoints' max_position_embeddings of 512

VARIANTS: dict[str, dict[str, Any]] = {
    "gqa-tied": {},
    "mha-untied-bias": {
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
        "attention_bias": True,
    },
    "mqa-theta-1e6": {
        "num_key_value_heads": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    },
}


@pytest.fixture(scope="session", params=VARIANTS)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen3 in float32, one for each variant of the architecture."""
    return make_qwen3(tmp_path_factory.mktemp(request.param), **VARIANTS[request.param])


@pytest.fixture(scope="session")
def bfloat16_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_qwen3(tmp_path_factory.mktemp("bfloat16"), dtype=torch.bfloat16)


@pytest.fixture(scope="session")
def history() -> list[int]:
    """Tokens of one long conversation."""
    return [int(token) for token in np.random.default_rng(7).integers(0, VOCAB_SIZE, NUM_TOKENS)]


@pytest.fixture(scope="session")
def reference_logits(checkpoint: Path, history: list[int]) -> Array:
    """The law's logits at every position; [tokens, vocab]."""
    return Reference(checkpoint).logits(history, SINK, WINDOW)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small models run fastest on one thread; also isolates tests that set another number."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)
