"""Small random checkpoints: one for each variant of an architecture that there is."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kakeya_worker.conformance.tools.checkpoint_files import Tensors, write_config, write_tensors
from kakeya_worker.conformance.tools.random_weights import random_tensor, random_words, to_bfloat16

MAX_POSITIONS = 512
NUM_GREEDY, MIN_DISTINCT = 256, 100
"""A model that repeats one token proves nothing: of so many greedy tokens at least so many are distinct."""


@dataclass(frozen=True, eq=False)
class Variant:
    """One architecture with random weights.

    Attributes:
        name: as it stands in a test's id.
        config: config.json.
    """

    name: str
    config: Mapping[str, Any]

    @property
    def family(self) -> str:
        return str(self.config["model_type"])

    @property
    def head_dim(self) -> int:
        return int(self.config.get("head_dim") or self.config["hidden_size"] // self.config["num_attention_heads"])

    def history(self, num_tokens: int, number: int = 0) -> tuple[int, ...]:
        """The beginning of one of many long conversations."""
        words = random_words(f"history {number}", num_tokens)
        return tuple(int(word) for word in words[0] % np.uint64(self.config["vocab_size"]))

    def tensors(self, dtype: str = "float32") -> Tensors:
        """The weights by name, rounded to float32 or bfloat16; always float32 arrays."""
        tensors = {name: random_tensor(self.name, name, shape) for name, shape in self._shapes().items()}
        return tensors if dtype == "float32" else {name: to_bfloat16(tensor) for name, tensor in tensors.items()}

    def write(self, directory: Path, dtype: str = "float32", num_files: int = 1) -> Path:
        """Writes config.json and the weights in float32 or bfloat16; returns `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        write_config(directory, {**self.config, "torch_dtype": dtype})
        write_tensors(directory, self.tensors(dtype), dtype, num_files)
        return directory

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        hidden, vocab = self.config["hidden_size"], self.config["vocab_size"]
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden)}
        for layer in range(self.config["num_hidden_layers"]):
            shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in self._layer_shapes().items()}
        shapes["model.norm.weight"] = (hidden,)
        if not self.config["tie_word_embeddings"]:
            shapes["lm_head.weight"] = (vocab, hidden)
        return shapes

    def _layer_shapes(self) -> dict[str, tuple[int, ...]]:
        config = self.config
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        num_queries = config["num_attention_heads"] * self.head_dim
        num_kv = config["num_key_value_heads"] * self.head_dim
        has_output_bias = config.get("attention_bias", False)
        has_qkv_bias = has_output_bias or self.family == "qwen2"
        shapes: dict[str, tuple[int, ...]] = {"input_layernorm.weight": (hidden,)}
        shapes |= _linear("self_attn.q_proj", num_queries, hidden, has_qkv_bias)
        shapes |= _linear("self_attn.k_proj", num_kv, hidden, has_qkv_bias)
        shapes |= _linear("self_attn.v_proj", num_kv, hidden, has_qkv_bias)
        shapes |= _linear("self_attn.o_proj", hidden, num_queries, has_output_bias)
        if self.family == "qwen3":
            shapes |= {f"self_attn.{name}_norm.weight": (self.head_dim,) for name in "qk"}
        shapes["post_attention_layernorm.weight"] = (hidden,)
        for name in ("gate_proj", "up_proj"):
            shapes |= _linear(f"mlp.{name}", inner, hidden, config.get("mlp_bias", False))
        return shapes | _linear("mlp.down_proj", hidden, inner, config.get("mlp_bias", False))


def _linear(name: str, out_features: int, in_features: int, has_bias: bool) -> dict[str, tuple[int, ...]]:
    weight: dict[str, tuple[int, ...]] = {f"{name}.weight": (out_features, in_features)}
    return weight | ({f"{name}.bias": (out_features,)} if has_bias else {})


def _config(model_type: str, **numbers: Any) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "hidden_act": "silu",
        "max_position_embeddings": MAX_POSITIONS,
        "num_hidden_layers": 3,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **numbers,
    }


VARIANTS: tuple[Variant, ...] = (
    Variant(
        "qwen3",  # GQA, tied, heads wider than hidden_size / heads; written as transformers 5 does
        _config(
            "qwen3",
            vocab_size=512,
            hidden_size=64,
            intermediate_size=96,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        ),
    ),
    Variant(
        "qwen3-bias",  # MHA, untied
        _config(
            "qwen3",
            vocab_size=480,
            hidden_size=64,
            intermediate_size=80,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=16,
            attention_bias=True,
            tie_word_embeddings=False,
            rope_theta=10_000,
        ),
    ),
    Variant(
        "qwen2",  # biases of queries, keys and values alone; GQA, untied, head_dim derived
        _config(
            "qwen2",
            vocab_size=384,
            hidden_size=72,
            intermediate_size=112,
            num_attention_heads=6,
            num_key_value_heads=2,
            tie_word_embeddings=False,
            use_sliding_window=False,
            sliding_window=64,
            rope_theta=1_000_000.0,
        ),
    ),
    Variant(
        "llama",  # MHA, biases everywhere, llama3 scaling with frequencies in all three bands
        _config(
            "llama",
            vocab_size=384,
            hidden_size=64,
            intermediate_size=96,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=20,
            rms_norm_eps=1e-5,
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=False,
            rope_theta=10_000.0,
            rope_scaling={
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 128,
            },
        ),
    ),
    Variant(
        "mistral",  # MQA, untied, head_dim derived, no window of its own
        _config(
            "mistral",
            vocab_size=256,
            hidden_size=64,
            intermediate_size=96,
            num_attention_heads=4,
            num_key_value_heads=1,
            rms_norm_eps=1e-5,
            tie_word_embeddings=False,
            sliding_window=None,
            rope_theta=10_000.0,
        ),
    ),
    Variant(
        "smollm",  # 9 heads share 3 KV heads, hidden_size no power of two, linear scaling in its oldest spelling
        _config(
            "llama",
            vocab_size=384,
            hidden_size=72,
            intermediate_size=96,
            num_attention_heads=9,
            num_key_value_heads=3,
            rms_norm_eps=1e-5,
            rope_theta=10_000.0,
            rope_scaling={"type": "linear", "factor": 2.5},
        ),
    ),
    Variant(
        "smollm3",  # NoPE: the second layer does not rotate
        _config(
            "smollm3",
            vocab_size=384,
            hidden_size=64,
            intermediate_size=96,
            num_attention_heads=4,
            num_key_value_heads=2,
            no_rope_layers=[1, 0, 1],
            no_rope_layer_interval=2,
            use_sliding_window=False,
            rope_parameters={"rope_type": "default", "rope_theta": 50_000.0},
        ),
    ),
)
"""Every family that this suite knows."""
