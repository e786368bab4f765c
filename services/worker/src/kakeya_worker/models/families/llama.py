"""Llama 1 to 3 (arXiv 2302.13971, 2407.21783), SmolLM and SmolLM2 (arXiv 2502.02737), and many that share the type."""

from collections.abc import Mapping
from typing import Any, Final

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.config_reader import ConfigReader
from kakeya_worker.models.model_config import ModelConfig, parse_decoder

DEFAULTS: Final[Mapping[str, Any]] = {
    "vocab_size": 32_000,
    "hidden_size": 4_096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2_048,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": False,
}


def parse(config: ConfigReader) -> ModelConfig:
    if "sliding_attention" in config.entries("layer_types"):
        raise ModelRefused("a llama has no layers with a sliding window")
    has_bias = config.flag("attention_bias")
    return parse_decoder(config, qkv_bias=has_bias, output_bias=has_bias, mlp_bias=config.flag("mlp_bias"))
