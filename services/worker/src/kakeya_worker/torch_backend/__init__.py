"""The torch backend: decoders on the CPU, exactly in int8, or in float32 or bfloat16."""

from kakeya_worker.torch_backend.verifier import TorchVerifier

__all__ = ["TorchVerifier"]
