"""The random checkpoint that most tests share: a small Qwen3 directory that is made in a moment, the same everywhere.

It speaks nonsense, but lively nonsense: greedy output wanders instead of repeating one token, which would prove
nothing. Only numpy and safetensors are needed, so that each part can make it in an environment of its own.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

SEED: Final = 20240229
# The usual initialisation, 0.02, lets the residual stream copy the last token for ever (the embedding is also
# the output head); with 0.1 the layers outweigh it.
STANDARD_DEVIATION: Final = 0.1
EOS_TOKEN_ID: Final = 1023
END_OF_TEXT_ID: Final = 1021
CONFIG: Final[dict[str, Any]] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 1024,
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "rope_scaling": None,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "use_sliding_window": False,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "eos_token_id": EOS_TOKEN_ID,
}


def save_random_checkpoint(directory: Path) -> Path:
    """Writes config.json, generation_config.json and model.safetensors; returns `directory`, which it makes."""
    directory.mkdir(parents=True)
    eos = [EOS_TOKEN_ID, END_OF_TEXT_ID]
    _write_json(directory / "config.json", CONFIG)
    _write_json(directory / "generation_config.json", {"do_sample": False, "eos_token_id": eos})
    (directory / "model.safetensors").write_bytes(save(_weights(), metadata={"format": "pt"}))
    return directory


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def _weights() -> dict[str, NDArray[np.float32]]:
    """All tensors of the model by their name in a Qwen3 checkpoint; the same values at every call."""
    generator = np.random.Generator(np.random.PCG64(SEED))
    return {name: _tensor(generator, size) for name, size in _tensor_sizes()}


def _tensor(generator: np.random.Generator, size: tuple[int, ...]) -> NDArray[np.float32]:
    if len(size) == 1:  # the scale of a norm
        return np.ones(size, np.float32)
    return (generator.standard_normal(size) * STANDARD_DEVIATION).astype(np.float32)


def _tensor_sizes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (CONFIG["vocab_size"], CONFIG["hidden_size"])
    for index in range(CONFIG["num_hidden_layers"]):
        for name, size in _layer_sizes():
            yield f"model.layers.{index}.{name}.weight", size
    yield "model.norm.weight", (CONFIG["hidden_size"],)


def _layer_sizes() -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, intermediate, head_dim = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["head_dim"]
    query_size, kv_size = CONFIG["num_attention_heads"] * head_dim, CONFIG["num_key_value_heads"] * head_dim
    yield "input_layernorm", (hidden,)
    yield "self_attn.q_proj", (query_size, hidden)
    yield "self_attn.k_proj", (kv_size, hidden)
    yield "self_attn.v_proj", (kv_size, hidden)
    yield "self_attn.o_proj", (hidden, query_size)
    yield "self_attn.q_norm", (head_dim,)
    yield "self_attn.k_norm", (head_dim,)
    yield "post_attention_layernorm", (hidden,)
    yield "mlp.gate_proj", (intermediate, hidden)
    yield "mlp.up_proj", (intermediate, hidden)
    yield "mlp.down_proj", (hidden, intermediate)
