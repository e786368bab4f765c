"""Random checkpoints for tests, saved by transformers in its own layout.

A model that repeats one token proves nothing, so a checkpoint is the first of a few seeds that emits at least
100 distinct tokens in 256 greedy ones.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

NUM_GREEDY = 256
MIN_DISTINCT = 100
MAX_SEEDS = 8


def make_qwen3(directory: Path, *, dtype: torch.dtype = torch.float32, **overrides: Any) -> Path:
    """A small lively Qwen3 with random weights; returns `directory`.

    Args:
        overrides: of the Qwen3Config, e.g. tie_word_embeddings.
    """
    config = _config(overrides)
    model = next(filter(_is_lively, (_random_qwen3(config, seed) for seed in range(MAX_SEEDS))), None)
    assert model is not None, f"{MAX_SEEDS} seeds gave fewer than {MIN_DISTINCT} distinct tokens in {NUM_GREEDY}"
    model.to(dtype).save_pretrained(directory)
    return directory


def save_random_qwen3(directory: Path, **overrides: Any) -> Path:
    """As `make_qwen3`, where only shapes matter and not what the model says."""
    _random_qwen3(_config(overrides), seed=0).save_pretrained(directory)
    return directory


def _config(overrides: dict[str, Any]) -> Qwen3Config:
    numbers = {
        "vocab_size": 512,
        "hidden_size": 128,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        "tie_word_embeddings": True,
    }
    return Qwen3Config(**{**numbers, **overrides})


def _random_qwen3(config: Qwen3Config, seed: int) -> Qwen3ForCausalLM:
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)  # not all ones, so that leaving one out shows
            else:
                parameter.normal_(std=0.1 if "embed" in name else 0.2)
    return model


def _is_lively(model: Qwen3ForCausalLM) -> bool:
    return len(set(greedy_tokens(model, [1, 2, 3], NUM_GREEDY))) >= MIN_DISTINCT


def greedy_tokens(model: Qwen3ForCausalLM, prompt: list[int], num_tokens: int) -> list[int]:
    """What transformers generates greedily after a prompt."""
    with torch.inference_mode():
        output = model.generate(
            torch.tensor([prompt]),
            max_new_tokens=num_tokens,
            min_new_tokens=num_tokens,
            do_sample=False,
            pad_token_id=0,
        )
    return [int(token) for token in output[0, len(prompt) :]]


def transformers_logits(directory: Path, token_ids: list[int]) -> torch.Tensor:
    """float32 logits of every position, by transformers; [tokens, vocab]."""
    model = Qwen3ForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    with torch.inference_mode():
        return model(torch.tensor([token_ids])).logits[0]
