"""Random checkpoints on which a quantization is judged: plain ones, and ones with outlier channels.

An outlier channel is one of 0.1 % of the channels (at least one) of a norm or a matrix, made 50 times as large. Trained
models have such channels in their activations (arXiv 2208.07339, 2211.10438), and they are what integers find hardest.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.checkpoints import make_qwen3

OUTLIER_SHARE = 0.001
OUTLIER_FACTOR = 50.0

_HEADS = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64}
SHAPES: dict[str, dict[str, Any]] = {
    "128x3": {},
    "512x4": {**_HEADS, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4},
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

Tensors = dict[str, Tensor]
Pick = Callable[[int], Tensor]


def _enlarged(parts: tuple[str, ...], dimension: int) -> Callable[[Tensors, Pick], None]:
    """Channels of one dimension of the tensors whose names have one of the parts."""

    def enlarge(tensors: Tensors, pick: Pick) -> None:
        for name, tensor in tensors.items():
            if any(part in name for part in parts):
                tensor.transpose(0, dimension)[pick(tensor.shape[dimension])] *= OUTLIER_FACTOR

    return enlarge


def _balanced(tensors: Tensors, pick: Pick) -> None:
    """Norm gains, with the matrices after them divided in turn: the same function, as in trained models."""
    for name, gain in tensors.items():
        prefix, _, norm = name.removesuffix(".weight").rpartition(".")
        if norm in _READERS:
            channels = pick(len(gain))
            gain[channels] *= OUTLIER_FACTOR
            for reader in _READERS[norm]:
                tensors[f"{prefix}.{reader}.weight"][:, channels] /= OUTLIER_FACTOR


OUTLIERS: dict[str, Callable[[Tensors, Pick], None]] = {
    "gains": _enlarged(("layernorm", "model.norm"), 0),  # the activations that all matrices after a norm read
    "balanced": _balanced,
    "columns": _enlarged(("_proj", "embed_tokens"), 1),  # input channels, and channels of the embedding
    "rows": _enlarged(("_proj",), 0),  # output channels; a row of the embedding is a token, not a channel
}


def make(directory: Path, shape: str) -> Iterator[Path]:
    """The plain checkpoint of a shape and its variants with outliers; a folder's name says which."""
    plain = make_qwen3(directory / f"{shape}-plain", **SHAPES[shape])
    yield plain
    for name, place in OUTLIERS.items():
        generator = torch.Generator().manual_seed(0)

        def pick(num_channels: int, generator: torch.Generator = generator) -> Tensor:
            return torch.randperm(num_channels, generator=generator)[: max(1, round(num_channels * OUTLIER_SHARE))]

        tensors = load_file(plain / "model.safetensors")
        place(tensors, pick)
        target = directory / f"{shape}-{name}"
        target.mkdir()
        shutil.copy(plain / "config.json", target)
        save_file(tensors, target / "model.safetensors")
        yield target
