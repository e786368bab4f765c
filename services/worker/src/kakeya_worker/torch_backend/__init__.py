"""The torch backend: Qwen3 on the CPU, float32 or bfloat16."""

from kakeya_worker.torch_backend.verifier import TorchVerifier

__all__ = ["TorchVerifier"]
