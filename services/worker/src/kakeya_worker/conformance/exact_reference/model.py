"""A checkpoint in exact mode: its weights, quantized, and what they do to one token."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kakeya_worker.conformance.exact_reference.angles import Angles
from kakeya_worker.conformance.exact_reference.formulas import Floats, rms_norm
from kakeya_worker.conformance.exact_reference.quantization import quantize, quantize_table
from kakeya_worker.conformance.exact_reference.tensors import read_tensors


class Linear(Protocol):
    """A linear layer, however its weights are held."""

    def __call__(self, x: Floats, /) -> Floats:
        """[in_features] -> [out_features]."""
        ...

    def row(self, index: int, /) -> Floats:
        """The weights of one output, as an embedding; [in_features]."""
        ...


@dataclass(frozen=True)
class ReferenceLayer:
    """One layer's weights; q_norm and k_norm are None where a family has none."""

    attention_norm: Floats
    qkv: Linear
    q_norm: Floats | None
    k_norm: Floats | None
    out: Linear
    mlp_norm: Floats
    gate_up: Linear
    down: Linear
    uses_rope: bool


class ExactReference:
    """A model of any family; what distinguishes them is told by the config and by which tensors there are.

    Args:
        directory: a checkpoint: config.json and model.safetensors.
        kv_dtype: bfloat16, float32 or int8.
    """

    def __init__(self, directory: Path, kv_dtype: str = "bfloat16") -> None:
        self.config: dict[str, Any] = json.loads((directory / "config.json").read_text())
        self.kv_dtype = kv_dtype
        self.num_heads: int = self.config["num_attention_heads"]
        self.num_kv_heads: int = self.config.get("num_key_value_heads") or self.num_heads
        self.head_dim: int = self.config.get("head_dim") or self.config["hidden_size"] // self.num_heads
        self.angles = Angles(self.config, self.head_dim)
        self._tensors = read_tensors(directory / "model.safetensors")
        self.layers = [self._layer(number) for number in range(self.config["num_hidden_layers"])]
        self.embedding: Linear = quantize_table(self._tensors["model.embed_tokens.weight"])
        is_tied = self.config.get("tie_word_embeddings")
        self.head: Linear = self.embedding if is_tied else quantize_table(self._tensors["lm_head.weight"])

    def norm(self, x: Floats, weight: Floats) -> Floats:
        return rms_norm(x, weight, self.config["rms_norm_eps"])

    def logits(self, final: Floats) -> Floats:
        """After the last layer [hidden] -> [vocab]."""
        return self.head(self.norm(final, self._tensors["model.norm.weight"]))

    def _layer(self, number: int) -> ReferenceLayer:
        prefix = f"model.layers.{number}"
        attention = f"{prefix}.self_attn"
        return ReferenceLayer(
            attention_norm=self._tensors[f"{prefix}.input_layernorm.weight"],
            qkv=self._linear(attention, "q_proj", "k_proj", "v_proj"),
            q_norm=self._tensors.get(f"{attention}.q_norm.weight"),
            k_norm=self._tensors.get(f"{attention}.k_norm.weight"),
            out=self._linear(attention, "o_proj"),
            mlp_norm=self._tensors[f"{prefix}.post_attention_layernorm.weight"],
            gate_up=self._linear(f"{prefix}.mlp", "gate_proj", "up_proj"),
            down=self._linear(f"{prefix}.mlp", "down_proj"),
            uses_rope=_uses_rope(self.config, number),
        )

    def _linear(self, prefix: str, *names: str) -> Linear:
        """Layers over the same input, one below the other: they share the exponents of their columns."""
        weights = [self._tensors[f"{prefix}.{name}.weight"] for name in names]
        biases = [self._tensors[key] for name in names if (key := f"{prefix}.{name}.bias") in self._tensors]
        return quantize(weights, biases)


def _uses_rope(config: dict[str, Any], layer: int) -> bool:
    """SmolLM3 alone leaves RoPE out of some layers."""
    if config["model_type"] != "smollm3":
        return True
    interval = config.get("no_rope_layer_interval", 4)
    rotates = config.get("no_rope_layers")
    return bool(rotates[layer]) if rotates else (layer + 1) % interval != 0
