"""The law in float64, slow and obvious: no cache, no ring, no rotation twice, one query at a time.

For each query p and each visible key j the key stays unrotated and the query is rotated by the distance
alone: p - j for the window, min(p, S + W - 1) - i for sink i. Rotations only depend on that difference, so
this is the law's definition and shares no code with the worker.
"""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file

Array = NDArray[np.float64]


class Reference:
    """A Qwen3 checkpoint in float64."""

    def __init__(self, directory: Path) -> None:
        self.config = json.loads((directory / "config.json").read_text())
        tensors = load_file(directory / "model.safetensors")
        self.weights: dict[str, Array] = {name: t.double().numpy() for name, t in tensors.items()}

    def logits(self, token_ids: list[int], sink: int, window: int) -> Array:
        """The logits of every position under the law; [tokens, vocab]."""
        x = self.weights["model.embed_tokens.weight"][token_ids]
        for layer in range(self.config["num_hidden_layers"]):
            x = self._layer(x, f"model.layers.{layer}.", sink, window)
        head = self.weights.get("lm_head.weight", self.weights["model.embed_tokens.weight"])
        return self._norm(x, "model.norm") @ head.T

    def _layer(self, x: Array, prefix: str, sink: int, window: int) -> Array:
        x = x + self._attention(self._norm(x, prefix + "input_layernorm"), prefix + "self_attn.", sink, window)
        h = self._norm(x, prefix + "post_attention_layernorm")
        gate = self._linear(h, prefix + "mlp.gate_proj")
        silu = gate / (1 + np.exp(-gate))
        return x + self._linear(silu * self._linear(h, prefix + "mlp.up_proj"), prefix + "mlp.down_proj")

    def _attention(self, x: Array, prefix: str, sink: int, window: int) -> Array:
        num_tokens, head_dim = len(x), self.config["head_dim"]
        q = self._norm(self._linear(x, prefix + "q_proj").reshape(num_tokens, -1, head_dim), prefix + "q_norm")
        k = self._norm(self._linear(x, prefix + "k_proj").reshape(num_tokens, -1, head_dim), prefix + "k_norm")
        v = self._linear(x, prefix + "v_proj").reshape(num_tokens, -1, head_dim)
        group = q.shape[1] // k.shape[1]
        mixed = np.zeros_like(q)
        for p in range(num_tokens):
            visible = [j for j in range(p + 1) if j < sink or j > p - window]
            distances = [min(p, sink + window - 1) - j if j < sink else p - j for j in visible]
            for head in range(q.shape[1]):
                rotated = self._rotate(q[p, head], np.array(distances))  # [visible, head_dim]
                scores = (rotated * k[visible, head // group]).sum(-1) / np.sqrt(head_dim)
                weights = np.exp(scores - scores.max())
                mixed[p, head] = (weights / weights.sum()) @ v[visible, head // group]
        return self._linear(mixed.reshape(num_tokens, -1), prefix + "o_proj")

    def _rotate(self, vector: Array, distances: NDArray[np.int64]) -> Array:
        """One vector rotated by each distance, half-split layout; [distances, head_dim]."""
        half = len(vector) // 2
        theta = self.config["rope_parameters"]["rope_theta"]
        angles = distances[:, None] * theta ** -(np.arange(half) * 2 / len(vector))
        first, second = vector[:half], vector[half:]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def _linear(self, x: Array, name: str) -> Array:
        bias = self.weights.get(name + ".bias")
        product = x @ self.weights[name + ".weight"].T
        return product if bias is None else product + bias

    def _norm(self, x: Array, name: str) -> Array:
        mean_square = (x * x).mean(-1, keepdims=True)
        return x / np.sqrt(mean_square + self.config["rms_norm_eps"]) * self.weights[name + ".weight"]
