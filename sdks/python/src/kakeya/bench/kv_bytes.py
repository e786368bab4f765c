"""What a session's KV must weigh, computed from the model's config.json alone."""

from collections.abc import Mapping
from typing import Any

_ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def kv_bytes_per_token(config: Mapping[str, Any], dtype: str) -> int:
    """Bytes of one token's K and V over all layers.

    Args:
        config: a Hugging Face config.json of a decoder with (grouped-query) attention.
        dtype: of the KV, as the worker says it.
    """
    num_heads: int = config["num_attention_heads"]
    num_kv_heads: int = config.get("num_key_value_heads") or num_heads
    head_dim: int = config.get("head_dim") or config["hidden_size"] // num_heads
    num_layers: int = config["num_hidden_layers"]
    return num_layers * num_kv_heads * head_dim * _ITEM_BYTES[dtype] * 2  # K and V


def kv_live_bytes(history_length: int, *, sink: int, window: int, bytes_per_token: int) -> int:
    """Bytes that are live for a session: the sinks and the window, as far as the history fills them."""
    return min(history_length, sink + window) * bytes_per_token
