"""Qwen3, dense (arXiv 2505.09388): queries and keys are normed head by head."""

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
    "head_dim": 128,
    "max_position_embeddings": 32_768,
    "sliding_window": 4_096,
    "max_window_layers": 28,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": False,
}


def parse(config: ConfigReader) -> ModelConfig:
    has_bias = config.flag("attention_bias")
    return parse_decoder(
        config,
        qk_norm=True,
        qkv_bias=has_bias,
        output_bias=has_bias,
        sliding_window=optional_sliding_window(config, by_default=has_windowed_layers(config)),
    )
