"""The shape of the demo model, as its config.json says it."""

from typing import Final

HIDDEN_SIZE: Final = 128
INTERMEDIATE_SIZE: Final = 384
NUM_LAYERS: Final = 4
NUM_HEADS: Final = 4
NUM_KV_HEADS: Final = 2
HEAD_DIM: Final = 32
VOCAB_SIZE: Final = 1024


def model_config(*, eos_token_id: int) -> dict[str, object]:
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
        "eos_token_id": eos_token_id,
    }
