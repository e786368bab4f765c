"""Loads a checkpoint by mlx-lm's loader, which knows MLX's forms of quantized weights, into our decoder."""

from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.mlx_backend.decoder import Decoder
from kakeya_worker.mlx_backend.mlx_lm_loader import load_model
from kakeya_worker.mlx_backend.mode import Mode
from kakeya_worker.models.model_config import ModelConfig


def load_decoder(directory: Path, config: ModelConfig, mode: Mode) -> Decoder:
    """The decoder with its weights in memory.

    Raises:
        ModelRefused: a tensor is missing, misshapen or of a wrong type.
    """
    decoder = _loaded(directory, config, mode)
    _refuse_integers(decoder)
    decoder.apply(lambda tensor: tensor.astype(mode.dtype) if mx.issubdtype(tensor.dtype, mx.floating) else tensor)
    mx.eval(decoder.parameters())
    return decoder


class _ParsedArguments:
    """What mlx-lm's loader asks for a model's arguments: they are there already."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config

    def from_dict(self, _: dict[str, Any]) -> ModelConfig:
        return self._config


def _loaded(directory: Path, config: ModelConfig, mode: Mode) -> Decoder:
    settings = mode.quantization.settings if mode.quantization else None
    # Said in full, so that nothing else in the directory decides it.
    said = {"quantization": settings, "quantization_config": None, "quantize_activations": False, "model_file": None}
    arguments = _ParsedArguments(config)
    try:
        decoder, _ = load_model(
            directory,
            lazy=True,
            model_config=said,
            get_model_classes=lambda config: (Decoder, arguments),
        )
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ModelRefused(f"{directory} cannot be loaded: {error}") from error
    loaded: Decoder = decoder
    return loaded


def _refuse_integers(decoder: Decoder) -> None:
    """Where they are no quantized matrix of MLX: the loader looks at shapes alone."""
    for name, module in decoder.named_modules():
        if isinstance(module, nn.QuantizedLinear | nn.QuantizedEmbedding):
            continue
        for parameter, tensor in module.items():
            if isinstance(tensor, mx.array) and not mx.issubdtype(tensor.dtype, mx.floating):
                raise ModelRefused(f"tensor {name}.{parameter} holds {tensor.dtype}: it cannot run")
