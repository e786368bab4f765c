"""The checkpoint's tensors that make up a decoder, by their names on the Hugging Face Hub."""

from dataclasses import dataclass

from kakeya_worker.models.model_config import ModelConfig
from kakeya_worker.torch_backend.numerics import LinearSpec

FINAL_NORM = "model.norm"


@dataclass(frozen=True)
class LayerTensors:
    """One layer's; norms by name, those of queries and keys None where the family has none."""

    attention_norm: str
    qkv: LinearSpec
    q_norm: str | None
    k_norm: str | None
    out: LinearSpec
    mlp_norm: str
    gate_up: LinearSpec
    down: LinearSpec


def layer_tensors(config: ModelConfig, layer: int) -> LayerTensors:
    """Of a layer by its number."""
    prefix = f"model.layers.{layer}"
    attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
    hidden, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
    num_heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads, "v_proj": config.num_kv_heads}
    qkv = tuple((name, num * head_dim) for name, num in num_heads.items())
    return LayerTensors(
        attention_norm=f"{prefix}.input_layernorm",
        qkv=LinearSpec(attention, qkv, hidden, config.qkv_bias),
        q_norm=f"{attention}.q_norm" if config.qk_norm else None,
        k_norm=f"{attention}.k_norm" if config.qk_norm else None,
        out=LinearSpec(attention, (("o_proj", hidden),), config.num_heads * head_dim, config.output_bias),
        mlp_norm=f"{prefix}.post_attention_layernorm",
        gate_up=LinearSpec(mlp, (("gate_proj", inner), ("up_proj", inner)), hidden, config.mlp_bias),
        down=LinearSpec(mlp, (("down_proj", hidden),), inner, config.mlp_bias),
    )
