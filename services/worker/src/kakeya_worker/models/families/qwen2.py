"""Qwen2 and Qwen2.5 (arXiv 2407.10671, 2412.15115): queries, keys and values have biases."""

from collections.abc import Mapping
from typing import Any, Final

from kakeya_worker.models.config_reader import ConfigReader
from kakeya_worker.models.model_config import ModelConfig, has_windowed_layers, optional_sliding_window, parse_decoder

DEFAULTS: Final[Mapping[str, Any]] = {
    "vocab_size": 151_936,
    "hidden_size": 4_096,
    "intermediate_size": 22_016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32_768,
    "sliding_window": 4_096,
    "max_window_layers": 28,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": False,
}


def parse(config: ConfigReader) -> ModelConfig:
    return parse_decoder(
        config, qkv_bias=True, sliding_window=optional_sliding_window(config, by_default=has_windowed_layers(config))
    )
