"""Modes of the MLX backend: which weights, which KV, and therefore which fingerprint."""

import json
from dataclasses import dataclass
from importlib import metadata

import mlx.core as mx

from kakeya_worker.engine.seams.fingerprint import fingerprint
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.mlx_backend import device
from kakeya_worker.mlx_backend.quantization import Quantization
from kakeya_worker.models.float_types import FLOAT_TYPES, float_type

_FLOATS = {"float32": mx.float32, "bfloat16": mx.bfloat16}


@dataclass(frozen=True)
class Mode:
    """What was chosen.

    Attributes:
        weights: float32, bfloat16, or that of the quantization.
        kv_dtype: of K, V and activations.
    """

    weights: str
    kv_dtype: str
    quantization: Quantization | None = None

    @property
    def dtype(self) -> mx.Dtype:
        """Of K, V and activations, and of all weights that are not quantized."""
        return _FLOATS[self.kv_dtype]

    def fingerprint(self, digest: str) -> str:
        """Of what a model of this digest computes here. Threads are no part of it: MLX takes no number of them."""
        settings = self.quantization.settings if self.quantization else {}
        return fingerprint(
            {
                "model": digest,
                "weights": self.weights,
                "kv_dtype": self.kv_dtype,
                "quantization": json.dumps(settings, sort_keys=True),
                "backend": "mlx",
                "version": metadata.version("mlx"),
                "instructions": device.name(),
            }
        )


def choose_mode(weights: str, kv_dtype: str, checkpoint_dtype: str, quantization: Quantization | None) -> Mode:
    """Resolves "auto". Raises ModelRefused."""
    if kv_dtype not in ("auto", *FLOAT_TYPES):
        raise ModelRefused(f"KV of type {kv_dtype!r} cannot run; what can: {', '.join(FLOAT_TYPES)}")
    if quantization is not None:
        if weights not in ("auto", quantization.mode):
            raise ModelRefused(f"weights {weights!r} cannot run: the checkpoint's are quantized to {quantization.mode}")
        return Mode(quantization.mode, float_type(kv_dtype, checkpoint_dtype), quantization)
    if weights not in ("auto", *FLOAT_TYPES):
        raise ModelRefused(
            f"weights {weights!r} cannot run with MLX; what can: {', '.join(FLOAT_TYPES)}, checkpoints that mlx-lm "
            "has quantized, and int8 with --backend torch"
        )
    if weights == "auto":
        weights = float_type(kv_dtype, checkpoint_dtype)
    if kv_dtype not in ("auto", weights):
        raise ModelRefused(f"weights of {weights} keep their KV in {weights}, not {kv_dtype}")
    return Mode(weights, weights)
