"""A Qwen3 of random weights, and the same in llama.cpp's format.

Random weights cost as much to run as trained ones, and nothing is downloaded.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from kakeya_bench.rivals import llama_cpp
from kakeya_bench.rivals.command import say

TINY: dict[str, Any] = {
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
SMALL: dict[str, Any] = {
    "vocab_size": 32_000,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 40_960,
}
"""Of 54 million parameters, which two cores can play through a long conversation."""


GGUF = "Q8_0.gguf"
"""The same model with Q8_0 matrices, in the checkpoint's directory."""


def kept(directory: Path, shape: Mapping[str, Any], dtype: str = "float32") -> Path:
    """The checkpoint that is there, else a new one; the weights of a shape are always the same.

    Raises:
        RivalFailed: the GGUF file could not be written.
    """
    if not (directory / GGUF).is_file():
        say(f"making the model in {directory}")
        save_random_qwen3(directory, dtype=getattr(torch, dtype), **shape)
        llama_cpp.gguf(directory, "Q8_0")  # which is there when all of it is
    return directory


def save_random_qwen3(directory: Path, *, dtype: torch.dtype = torch.float32, **overrides: Any) -> Path:
    """A Qwen3 of which only shapes matter and not what it says.

    Args:
        overrides: of TINY, or other fields of the config.
    """
    random_model("qwen3", **{**TINY, **overrides}).to(dtype).save_pretrained(directory)
    return directory


def random_model(model_type: str, *, seed: int = 0, **config: Any) -> Any:
    """A model of a family with random weights; the family's own defaults hold for what the config leaves out."""
    return initialised(AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **config)), seed)


def initialised(model: Any, seed: int) -> Any:
    """The model with random weights in place of its own."""
    torch.manual_seed(seed)
    model.eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)  # not all ones, so that leaving one out shows
            else:
                parameter.normal_(std=0.1 if "embed" in name or "lm_head" in name else 0.2)
    return model
