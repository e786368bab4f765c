"""Loads a model out of a GGUF file into our decoder: blocks become floats of the mode's type."""

from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.mlx_backend.decoder import Decoder
from kakeya_worker.mlx_backend.mode import Mode
from kakeya_worker.models.gguf.gguf_tensors import GgufTensors
from kakeya_worker.models.model_config import ModelConfig


def load_decoder(tensors: GgufTensors, config: ModelConfig, mode: Mode) -> Decoder:
    """The decoder with its weights in memory; one tensor at a time is there as it was read.

    Raises:
        ModelRefused: a tensor is missing, misshapen or of a type that cannot be read.
    """
    decoder = Decoder(config)
    arrays = {}
    for name in tensors.names:
        arrays[name] = _array(tensors.read(name)).astype(mode.dtype)
        mx.eval(arrays[name])
    try:
        decoder.load_weights(list(decoder.sanitize(arrays).items()))
    except ValueError as error:
        reason = " ".join(str(error).split())  # several lines
        raise ModelRefused(f"{tensors.files[0]} cannot be loaded: {reason}") from error
    return decoder


def _array(numbers: NDArray[Any]) -> mx.array:
    """bfloat16 comes as its bits."""
    array = mx.array(numbers)
    return array.view(mx.bfloat16) if numbers.dtype == np.uint16 else array
