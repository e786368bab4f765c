"""SmolLM3 (Hugging Face, 2025): a Llama without RoPE in every fourth layer (NoPE, arXiv 2501.18795)."""

from kakeya_worker.engine.verifier import ModelRefused
from kakeya_worker.models.config_reader import ConfigReader
from kakeya_worker.models.model_config import ModelConfig, optional_sliding_window, parse_decoder


def parse(config: ConfigReader) -> ModelConfig:
    has_bias = config.flag("attention_bias")
    return parse_decoder(
        config,
        qkv_bias=has_bias,
        output_bias=has_bias,
        mlp_bias=config.flag("mlp_bias"),
        sliding_window=optional_sliding_window(config),
        layers_without_rope=_layers_without_rope(config),
        tied_by_default=True,
    )


def _layers_without_rope(config: ConfigReader) -> tuple[int, ...]:
    """`no_rope_layers` has a 1 for each layer that does rotate."""
    interval, num_layers = config.integer("no_rope_layer_interval", 4), config.integer("num_hidden_layers")
    rotates = config.entries("no_rope_layers") or [int((layer + 1) % interval != 0) for layer in range(num_layers)]
    if len(rotates) < num_layers:
        raise ModelRefused(f"config.json: no_rope_layers says nothing of layers from {len(rotates)} on")
    return tuple(layer for layer in range(num_layers) if not rotates[layer])
