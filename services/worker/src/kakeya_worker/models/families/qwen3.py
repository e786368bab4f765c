"""Qwen3, dense (arXiv 2505.09388): queries and keys are normed head by head."""

from kakeya_worker.models.config_reader import ConfigReader
from kakeya_worker.models.model_config import ModelConfig, optional_sliding_window, parse_decoder


def parse(config: ConfigReader) -> ModelConfig:
    has_bias = config.flag("attention_bias")
    return parse_decoder(
        config,
        qk_norm=True,
        qkv_bias=has_bias,
        output_bias=has_bias,
        sliding_window=optional_sliding_window(config),
    )
