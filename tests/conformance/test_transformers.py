"""Inside the window the law is what everybody computes: each family against transformers.

Shapes cover GQA, MQA and MHA; head_dim given and derived; with and without biases; tied or not; every RoPE scaling.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kakeya.kv_bytes import kv_bytes_per_token, read_config
from kakeya_worker.engine.lanes.lane import Lane
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.engine.seams.verifier import Verifier
from kakeya_worker.mlx_backend import MlxVerifier
from kakeya_worker.torch_backend import TorchVerifier
from tests.checkpoints import greedy_tokens, make_checkpoint, save_random_vision, transformers_model

TOLERANCE = 1e-4  # of the largest logit
GEOMETRY = LaneGeometry(sink=4, window=300, chunk=32)
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,  # so small that long, short and middle waves all occur
}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3-gqa-tied": ("qwen3", {}),
    "qwen3-mha-untied-bias": (
        "qwen3",
        {"num_key_value_heads": 4, "tie_word_embeddings": False, "attention_bias": True},
    ),
    "qwen2-gqa-untied": ("qwen2", {"tie_word_embeddings": False}),
    "qwen2-mqa-theta-1e6": (
        "qwen2",
        {"num_key_value_heads": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    ),
    "llama3-mha-wide-heads": (
        "llama",
        {"num_key_value_heads": 4, "head_dim": 48, "tie_word_embeddings": False, "rope_parameters": LLAMA3},
    ),
    "llama-bias-everywhere": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "smollm-linear": (  # nine heads, three of them for KV, and a head_dim that is derived
        "llama",
        {
            "hidden_size": 144,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "head_dim": None,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0},
        },
    ),
    "mistral-mqa": ("mistral", {"num_key_value_heads": 1, "head_dim": 40, "tie_word_embeddings": False}),
    "smollm3-nope": ("smollm3", {"num_hidden_layers": 4, "no_rope_layer_interval": 2}),
}


@pytest.fixture(scope="module", params=FAMILIES)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model_type, overrides = FAMILIES[request.param]
    return make_checkpoint(tmp_path_factory.mktemp(request.param), model_type, **overrides)


class Session:
    """One lane of a float32 verifier, poisoned, fed a row at a time."""

    def __init__(self, checkpoint: Path, backend: type[Verifier] = TorchVerifier) -> None:
        self.verifier = backend(
            str(checkpoint), weights="float32", kv_dtype="auto", num_threads=1, cache_directory=None
        )
        self.verifier.allocate(GEOMETRY, 1)
        self.verifier.poison()
        self.lane = Lane(GEOMETRY, 0, sink_window(SessionOptions(), GEOMETRY))

    def append(self, token_ids: list[int]) -> NDArray[np.float32]:
        row = self.lane.row(tuple(token_ids))
        self.verifier.forward([row])
        self.lane.commit(row)
        return self.verifier.logits([0])[0]


def test_logits_are_those_of_transformers(checkpoint: Path) -> None:
    tokens = [int(token) for token in np.random.default_rng(3).integers(0, 512, 200)]
    with torch.inference_mode():
        expected = transformers_model(checkpoint)(torch.tensor([tokens])).logits[0].numpy()
    session = Session(checkpoint)
    ends = [1, 2, 9, 41, 42, *range(50, 200, 25), 200]
    worst = 0.0
    for start, end in zip([0, *ends], ends, strict=False):
        logits = session.append(tokens[start:end])
        worst = max(worst, float(np.abs(logits - expected[end - 1]).max() / np.abs(expected[end - 1]).max()))
    assert worst <= TOLERANCE


def test_greedy_tokens_are_those_of_transformers(checkpoint: Path) -> None:
    prompt = list(range(7, 37))
    session = Session(checkpoint)
    logits = session.append(prompt)
    tokens: list[int] = []
    for _ in range(100):
        tokens.append(int(np.argmax(logits)))
        logits = session.append(tokens[-1:])
    assert tokens == greedy_tokens(transformers_model(checkpoint), prompt, 100)


@pytest.mark.parametrize("backend", [TorchVerifier, MlxVerifier])
@pytest.mark.parametrize(
    ("wrapper", "text", "vision"), [("mistral3", "mistral", "pixtral"), ("llava", "llama", "clip_vision_model")]
)
@pytest.mark.parametrize("is_tied", [True, False])
def test_the_language_model_of_one_that_sees_runs_by_itself(
    tmp_path: Path, backend: type[Verifier], wrapper: str, text: str, vision: str, is_tied: bool
) -> None:
    model = save_random_vision(tmp_path, wrapper, text=text, vision=vision, tie_word_embeddings=is_tied)
    tokens = list(range(7, 57))
    with torch.inference_mode():
        expected = model(torch.tensor([tokens])).logits[0, -1].numpy()
    session = Session(tmp_path, backend)
    session.append(tokens[:32])
    assert np.abs(session.append(tokens[32:]) - expected).max() <= TOLERANCE * np.abs(expected).max()
    assert session.verifier.facts.kv_bytes_per_token == kv_bytes_per_token(read_config(tmp_path), "float32")
