"""The shape of kakeya-nano, as its config.json says it."""

from typing import Any, Final

HIDDEN_SIZE: Final = 192
INTERMEDIATE_SIZE: Final = 512
NUM_LAYERS: Final = 6
NUM_HEADS: Final = 6
NUM_KV_HEADS: Final = 2
HEAD_DIM: Final = 32
VOCAB_SIZE: Final = 2048
MAX_POSITIONS: Final = 1024
TRAINED_CONTEXT: Final = 1280
"""Tokens of a training sequence: more than the positions that it is said to have, so that the last of them are
as well trained as the others."""


def model_config(*, eos_token_id: int) -> dict[str, Any]:
    """config.json, in the spelling of the Qwen3 checkpoints on the Hub."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": HIDDEN_SIZE,
        "intermediate_size": INTERMEDIATE_SIZE,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": NUM_HEADS,
        "num_key_value_heads": NUM_KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": MAX_POSITIONS,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "rope_scaling": None,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
        "eos_token_id": eos_token_id,
    }
