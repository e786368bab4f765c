"""Random checkpoints on which a quantization is judged: plain ones, and ones with outlier channels.

An outlier channel is one of 0.1 % of the channels (at least one) of a norm or a matrix, made 50 times as large. Trained
models have such channels in their activations (arXiv 2208.07339, 2211.10438), and they are what integers find hardest.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.checkpoints import make_qwen3

OUTLIER_SHARE = 0.001
OUTLIER_FACTOR = 50.0

SHAPES: dict[str, dict[str, Any]] = {
    "128x3": {},
    "512x4": {
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
    },
    "1024x2": {
        "vocab_size": 2048,
        "hidden_size": 1024,
        "intermediate_size": 2048,
        "num_hidden_layers": 2,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 64,
    },
}
"""By hidden size and number of layers; what differs from the test checkpoint."""

# The matrices that read what a norm wrote; the final norm's reader, the tied embedding, is not among them.
_READERS = {
    "input_layernorm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj"),
}


class Outliers:
    """The tensors of a checkpoint, and a way to pick outlier channels among them."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors
        self._generator = torch.Generator().manual_seed(0)

    def pick(self, num_channels: int) -> Tensor:
        """Indices of the outliers."""
        num_outliers = max(1, round(num_channels * OUTLIER_SHARE))
        return torch.randperm(num_channels, generator=self._generator)[:num_outliers]

    def gains(self) -> None:
        """Norm gains: the activations that all matrices after a norm read."""
        for gain in self._named("layernorm", "model.norm"):
            gain[self.pick(len(gain))] *= OUTLIER_FACTOR

    def balanced(self) -> None:
        """Norm gains, with the matrices after them divided in turn: the same function, as in trained models."""
        for name, gain in self.tensors.items():
            prefix, _, norm = name.removesuffix(".weight").rpartition(".")
            if norm in _READERS:
                channels = self.pick(len(gain))
                gain[channels] *= OUTLIER_FACTOR
                for reader in _READERS[norm]:
                    self.tensors[f"{prefix}.{reader}.weight"][:, channels] /= OUTLIER_FACTOR

    def columns(self) -> None:
        """Input channels of every matrix, and channels of the embedding."""
        for matrix in self._named("_proj", "embed_tokens"):
            matrix[:, self.pick(matrix.shape[1])] *= OUTLIER_FACTOR

    def rows(self) -> None:
        """Output channels of every matrix; a row of the embedding is a token, not a channel."""
        for matrix in self._named("_proj"):
            matrix[self.pick(matrix.shape[0])] *= OUTLIER_FACTOR

    def _named(self, *parts: str) -> list[Tensor]:
        return [tensor for name, tensor in self.tensors.items() if any(part in name for part in parts)]


OUTLIERS: dict[str, Callable[[Outliers], None]] = {
    "gains": Outliers.gains,
    "balanced": Outliers.balanced,
    "columns": Outliers.columns,
    "rows": Outliers.rows,
}


@dataclass(frozen=True)
class Checkpoint:
    """One to be judged on.

    Attributes:
        name: shape and outliers.
    """

    name: str
    directory: Path


def make(directory: Path, shape: str) -> list[Checkpoint]:
    """The plain checkpoint of a shape and its variants with outliers."""
    plain = make_qwen3(directory / f"{shape}-plain", **SHAPES[shape])
    variants = [_with_outliers(plain, directory / f"{shape}-{name}", place) for name, place in OUTLIERS.items()]
    return [Checkpoint(path.name, path) for path in (plain, *variants)]


def _with_outliers(plain: Path, target: Path, place: Callable[[Outliers], None]) -> Path:
    target.mkdir()
    shutil.copy(plain / "config.json", target)
    outliers = Outliers(load_file(plain / "model.safetensors"))
    place(outliers)
    save_file(outliers.tensors, target / "model.safetensors")
    return target
