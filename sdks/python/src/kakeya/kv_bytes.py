"""What a session's KV must weigh, computed from the model's config.json alone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}
_SCALE_BYTES = {"int8": 2}  # of each token and head
# What these families have where a config.json leaves it out, as transformers has it; others have as many KV heads as
# heads, and heads that share the hidden size among them. So has a null.
_LEFT_OUT = {
    "mistral": {"num_key_value_heads": 8},
    "qwen2": {"num_key_value_heads": 32},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128},
    "smollm3": {"num_key_value_heads": 4},
}


class ConfigError(Exception):
    """A config.json cannot be read, or does not say what the KV of its model weighs."""


def read_config(path: Path) -> Mapping[str, Any]:
    """A config.json, named itself or by its directory: the language model's, where there are others beside it.

    Raises:
        ConfigError
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text())
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is no JSON: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{file} is no JSON object")
    part = config.get("text_config")
    return part if isinstance(part, dict) else config


def kv_bytes_per_token(config: Mapping[str, Any], dtype: str) -> int:
    """Bytes of one token's K and V over all layers.

    Args:
        config: a Hugging Face config.json of a decoder with (grouped-query) attention.
        dtype: of the KV, as the worker says it.

    Raises:
        ConfigError: a size is missing or is no number of things, or the type has no known size.
    """
    if dtype not in ITEM_BYTES:
        raise ConfigError(f"what a token's KV weighs cannot be computed: the size of {dtype!r} is not known")
    config = {**_LEFT_OUT.get(str(config.get("model_type")), {}), **config}
    num_heads = _size(config, "num_attention_heads")
    num_kv_heads = _size(config, "num_key_value_heads") if config.get("num_key_value_heads") else num_heads
    head_dim = _size(config, "head_dim") if config.get("head_dim") else _size(config, "hidden_size") // num_heads
    head_bytes = head_dim * ITEM_BYTES[dtype] + _SCALE_BYTES.get(dtype, 0)
    return _size(config, "num_hidden_layers") * num_kv_heads * head_bytes * 2  # K and V


def kv_live_bytes(history_length: int, *, sink: int, window: int, bytes_per_token: int) -> int:
    """Bytes that are live for a session: the sinks and the window, as far as the history fills them."""
    return min(history_length, sink + window) * bytes_per_token


def _size(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if type(value) is not int or value < 1:
        reason = f"config.json has no {name} that is a whole number above 0"
        raise ConfigError(f"what a token's KV weighs cannot be computed: {reason}")
    return value
