"""Random checkpoints for tests, saved by transformers in its own layout.

A model that repeats one token proves nothing, so a checkpoint is the first of a few seeds that emits at least
100 distinct tokens in 256 greedy ones.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

NUM_GREEDY = 256
MIN_DISTINCT = 100
MAX_SEEDS = 8

SHAPE: dict[str, Any] = {
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
    "use_sliding_window": False,
    "sliding_window": None,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}


def make_checkpoint(directory: Path, model_type: str, *, dtype: torch.dtype = torch.float32, **overrides: Any) -> Path:
    """A small lively model of a family with random weights; returns `directory`.

    Args:
        overrides: of its config, e.g. tie_word_embeddings.
    """
    config = AutoConfig.for_model(model_type, **{**SHAPE, **overrides})
    model = next(filter(_is_lively, (_random(config, seed) for seed in range(MAX_SEEDS))), None)
    assert model is not None, f"{MAX_SEEDS} seeds gave fewer than {MIN_DISTINCT} distinct tokens in {NUM_GREEDY}"
    model.to(dtype).save_pretrained(directory)
    return directory


def random_model(model_type: str, *, seed: int = 0, **config: Any) -> Any:
    """A model of a family with random weights; the family's own defaults hold for what the config leaves out."""
    return _random(AutoConfig.for_model(model_type, **config), seed)


def save_random_qwen3(directory: Path, *, dtype: torch.dtype = torch.float32, **overrides: Any) -> Path:
    """A Qwen3 of which only shapes matter and not what it says."""
    random_model("qwen3", **{**SHAPE, **overrides}).to(dtype).save_pretrained(directory)
    return directory


_VISION: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 16,
}


def save_random_vision(directory: Path, wrapper: str, *, text: str, vision: str, **overrides: Any) -> Any:
    """A model that sees, whose language model is of a family; returns what was saved.

    Args:
        wrapper: its `model_type`; those of its parts are `text` and `vision`.
        overrides: of the language model's config.
    """
    return save_vision(directory, wrapper, {"model_type": text, **SHAPE, **overrides}, vision)


def save_vision(directory: Path, wrapper: str, text_config: dict[str, Any], vision: str) -> Any:
    """As above; what the language model's config leaves out is its family's own default."""
    ties = {name: value for name, value in text_config.items() if name == "tie_word_embeddings"}
    config = AutoConfig.for_model(
        wrapper,
        **ties,
        text_config=text_config,
        vision_config={"model_type": vision, **_VISION},
        image_token_index=text_config["vocab_size"] - 1,
    )
    model = _initialised(AutoModelForImageTextToText.from_config(config), seed=0)
    model.save_pretrained(directory)
    return model


def make_qwen3(directory: Path, *, dtype: torch.dtype = torch.float32, **overrides: Any) -> Path:
    """As `make_checkpoint`."""
    return make_checkpoint(directory, "qwen3", dtype=dtype, **overrides)


def _random(config: Any, seed: int) -> Any:
    return _initialised(AutoModelForCausalLM.from_config(config), seed)


def _initialised(model: Any, seed: int) -> Any:
    torch.manual_seed(seed)
    model.eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)  # not all ones, so that leaving one out shows
            else:
                parameter.normal_(std=0.1 if "embed" in name or "lm_head" in name else 0.2)
    return model


def _is_lively(model: Any) -> bool:
    return len(set(greedy_tokens(model, [1, 2, 3], NUM_GREEDY))) >= MIN_DISTINCT


def greedy_tokens(model: Any, prompt: list[int], num_tokens: int) -> list[int]:
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


def transformers_model(directory: Path) -> Any:
    """The checkpoint as transformers loads it, in float32."""
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
