"""The law in float64, slow and obvious: one token at a time, no ring, no rotation twice.

For the query at p and each visible key j the key stays unrotated and the query is rotated by the distance alone:
p - j for the window, min(p, S + W - 1) - i for sink i. Rotations only depend on that difference, so this is the
law's definition; it shares no code with the worker.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.conformance.tools.checkpoint_files import Tensors
from kakeya_worker.conformance.tools.checkpoints import Variant

Array = NDArray[np.float64]


class Reference:
    """A session of a model in float64.

    Args:
        variant: the model.
        sink: S.
        window: W.
        dtype: which the weights were rounded to, float32 or bfloat16.
    """

    def __init__(self, variant: Variant, sink: int, window: int, dtype: str = "float32") -> None:
        self._config = variant.config
        self._head_dim = variant.head_dim
        self._tensors = _widened(variant.tensors(dtype))
        self._frequencies = frequencies(variant)
        self._sink, self._window = sink, window
        self._keys: list[list[Array]] = [[] for _ in range(self._config["num_hidden_layers"])]
        self._values: list[list[Array]] = [[] for _ in range(self._config["num_hidden_layers"])]
        self._embedding = self._tensors["model.embed_tokens.weight"]
        self._head = self._embedding if self._config["tie_word_embeddings"] else self._tensors["lm_head.weight"]

    def append(self, token_ids: Sequence[int]) -> Array:
        """The logits after each token; [tokens, vocab]."""
        return np.stack([self._append_one(token) for token in token_ids])

    def _append_one(self, token_id: int) -> Array:
        x = self._embedding[token_id]
        for layer in range(len(self._keys)):
            prefix = f"model.layers.{layer}."
            x = x + self._attention(self._norm(x, prefix + "input_layernorm"), layer, prefix + "self_attn.")
            x = x + self._mlp(self._norm(x, prefix + "post_attention_layernorm"), prefix + "mlp.")
        return self._head @ self._norm(x, "model.norm")

    def _attention(self, x: Array, layer: int, prefix: str) -> Array:
        q, k, v = (self._linear(x, f"{prefix}{name}_proj").reshape(-1, self._head_dim) for name in "qkv")
        if f"{prefix}q_norm.weight" in self._tensors:
            q, k = self._norm(q, prefix + "q_norm"), self._norm(k, prefix + "k_norm")
        self._keys[layer].append(k)
        self._values[layer].append(v)
        p = len(self._keys[layer]) - 1
        visible = [j for j in range(p + 1) if j < self._sink or j > p - self._window]
        last = self._sink + self._window - 1
        distances = [min(p, last) - j if j < self._sink else p - j for j in visible]
        looks = self._rotated(q, distances) if self._rotates(layer) else q  # [visible, heads, head_dim]
        group = len(q) // len(k)
        keys = np.stack([self._keys[layer][j] for j in visible]).repeat(group, axis=1)  # [visible, heads, head_dim]
        values = np.stack([self._values[layer][j] for j in visible]).repeat(group, axis=1)
        scores = (looks * keys).sum(-1) / np.sqrt(self._head_dim)  # [visible, heads]
        weights = np.exp(scores - scores.max(0))
        weights /= weights.sum(0)
        return self._linear((weights[:, :, None] * values).sum(0).reshape(-1), prefix + "o_proj")

    def _mlp(self, x: Array, prefix: str) -> Array:
        gate = self._linear(x, prefix + "gate_proj")
        silu = gate / (1 + np.exp(-gate))
        return self._linear(silu * self._linear(x, prefix + "up_proj"), prefix + "down_proj")

    def _rotates(self, layer: int) -> bool:
        """`no_rope_layers` has a 0 for layers that do not."""
        return bool(self._config.get("no_rope_layers", [1] * len(self._keys))[layer])

    def _rotated(self, heads: Array, distances: Sequence[int]) -> Array:
        """All heads rotated by each distance, half-split layout; [distances, heads, head_dim]."""
        angles = np.array(distances)[:, None, None] * self._frequencies  # [distances, 1, head_dim / 2]
        first, second = np.split(heads, 2, axis=-1)
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def _linear(self, x: Array, name: str) -> Array:
        product: Array = self._tensors[name + ".weight"] @ x
        return product + self._tensors[name + ".bias"] if name + ".bias" in self._tensors else product

    def _norm(self, x: Array, name: str) -> Array:
        mean_square = (x * x).mean(-1, keepdims=True)
        normed: Array = x / np.sqrt(mean_square + self._config["rms_norm_eps"]) * self._tensors[name + ".weight"]
        return normed


def frequencies(variant: Variant) -> Array:
    """The angles between neighbours in radians, scaled as the config says; [head_dim / 2]."""
    rope = variant.config.get("rope_parameters") or variant.config.get("rope_scaling") or {}
    theta = rope.get("rope_theta") or variant.config["rope_theta"]
    plain = float(theta) ** -(np.arange(0, variant.head_dim, 2) / variant.head_dim)
    match rope.get("rope_type") or rope.get("type") or "default":
        case "default":
            return plain
        case "linear":
            return plain / float(rope["factor"])
        case "llama3":
            return np.array([_llama3(frequency, rope) for frequency in plain])
        case other:
            raise ValueError(f"the reference knows no RoPE scaling {other!r}")


def _llama3(frequency: float, rope: dict[str, Any]) -> float:
    """Llama 3.1's scaling of one frequency, as Meta published it (llama-models, `apply_scaling`)."""
    wavelength = 2 * np.pi / frequency
    original = rope["original_max_position_embeddings"]
    if wavelength < original / rope["high_freq_factor"]:
        return frequency
    if wavelength > original / rope["low_freq_factor"]:
        return frequency / float(rope["factor"])
    smooth = (original / wavelength - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
    return float((1 - smooth) * frequency / rope["factor"] + smooth * frequency)


def _widened(tensors: Tensors) -> dict[str, Array]:
    return {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
