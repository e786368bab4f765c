"""SmolLM3 (Hugging Face, 2025): a Llama without RoPE in every fourth layer (NoPE, arXiv 2501.18795)."""

from collections.abc import Mapping
from typing import Any, Final

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.config_reader import ConfigReader
from kakeya_worker.models.model_config import ModelConfig, optional_sliding_window, parse_decoder

DEFAULTS: Final[Mapping[str, Any]] = {
    "vocab_size": 128_256,
    "hidden_size": 2_048,
    "intermediate_size": 11_008,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32_768,
    "no_rope_layer_interval": 4,
    "rope_theta": 2_000_000.0,
    "tie_word_embeddings": True,
}


def parse(config: ConfigReader) -> ModelConfig:
    has_bias = config.flag("attention_bias")
    layers_without_rope = _layers_without_rope(config)
    return parse_decoder(
        config,
        qkv_bias=has_bias,
        output_bias=has_bias,
        mlp_bias=config.flag("mlp_bias"),
        sliding_window=optional_sliding_window(config, by_default=bool(layers_without_rope)),
        layers_without_rope=layers_without_rope,
    )


def _layers_without_rope(config: ConfigReader) -> tuple[int, ...]:
    """`no_rope_layers` has a 1 for each layer that does rotate."""
    interval, num_layers = config.integer("no_rope_layer_interval"), config.integer("num_hidden_layers")
    rotates = config.entries("no_rope_layers") or [int((layer + 1) % interval != 0) for layer in range(num_layers)]
    if len(rotates) < num_layers:
        raise ModelRefused(f"config.json: no_rope_layers says nothing of layers from {len(rotates)} on")
    return tuple(layer for layer in range(num_layers) if not rotates[layer])
