"""Random checkpoints for tests, saved by transformers in its own layout.

A model that repeats one token proves nothing, so a checkpoint is the first of a few seeds that emits at least
100 distinct tokens in 256 greedy ones.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from kakeya_bench.rivals.checkpoint import TINY, initialised, random_model

NUM_GREEDY = 256
MIN_DISTINCT = 100
MAX_SEEDS = 8


def make_checkpoint(directory: Path, model_type: str, *, dtype: torch.dtype = torch.float32, **overrides: Any) -> Path:
    """A small lively model of a family with random weights; returns `directory`.

    Args:
        overrides: of its config, e.g. tie_word_embeddings.
    """
    config = {**TINY, **overrides}
    model = next(filter(_is_lively, (random_model(model_type, seed=seed, **config) for seed in range(MAX_SEEDS))), None)
    assert model is not None, f"{MAX_SEEDS} seeds gave fewer than {MIN_DISTINCT} distinct tokens in {NUM_GREEDY}"
    model.to(dtype).save_pretrained(directory)
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
    return save_vision(directory, wrapper, {"model_type": text, **TINY, **overrides}, vision)


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
    model = initialised(AutoModelForImageTextToText.from_config(config), seed=0)
    model.save_pretrained(directory)
    return model


def make_qwen3(directory: Path, *, dtype: torch.dtype = torch.float32, **overrides: Any) -> Path:
    """As `make_checkpoint`."""
    return make_checkpoint(directory, "qwen3", dtype=dtype, **overrides)


def save_reciting(directory: Path, vocab_size: int, follows: Mapping[int, int]) -> Path:
    """A Qwen3 that looks at the last token alone, and says what follows it; returns `directory`.

    Its layers add nothing. Each token is a direction of its own, and the head leads from there to the next one.

    Args:
        follows: tokens by the ones that they follow.
    """
    model = random_model(
        "qwen3", **TINY | {"vocab_size": vocab_size, "hidden_size": vocab_size, "tie_word_embeddings": False}
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight", "lm_head.weight")):
                parameter.zero_()
            elif name.endswith("norm.weight"):
                parameter.fill_(1.0)
        model.model.embed_tokens.weight.copy_(torch.eye(vocab_size))
        for token, following in follows.items():
            model.lm_head.weight[following, token] = 1.0
    model.save_pretrained(directory)
    return directory


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
