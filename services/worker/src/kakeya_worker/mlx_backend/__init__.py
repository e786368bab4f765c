"""The MLX backend: decoders on Apple silicon's GPU, elsewhere on the CPU, in floats or quantized by MLX."""

from kakeya_worker.mlx_backend.verifier import MlxVerifier

__all__ = ["MlxVerifier"]
