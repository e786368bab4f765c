"""Qwen2 and Qwen2.5 (arXiv 2407.10671, 2412.15115): queries, keys and values have biases."""

from kakeya_worker.models.config_reader import ConfigReader
from kakeya_worker.models.model_config import ModelConfig, optional_sliding_window, parse_decoder


def parse(config: ConfigReader) -> ModelConfig:
    return parse_decoder(config, qkv_bias=True, sliding_window=optional_sliding_window(config))
