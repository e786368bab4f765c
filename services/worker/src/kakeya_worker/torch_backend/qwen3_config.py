"""What a Qwen3 config.json says, and what of it cannot run here."""

from dataclasses import dataclass
from typing import Any

from kakeya_worker.engine.verifier import ModelRefused

SUPPORTED = (
    "what can run: model_type qwen3 (Qwen3ForCausalLM) with safetensors weights, dense MLP with silu, default RoPE, "
    "full attention in every layer"
)


@dataclass(frozen=True)
class Qwen3Config:
    """The numbers of a model; names as in config.json."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool
    dtype: str

    @classmethod
    def parse(cls, config: dict[str, Any]) -> "Qwen3Config":
        """Reads config.json.

        Raises:
            ModelRefused: another family, or a property that would break the law of the engine.
        """
        model_type = config.get("model_type")
        if model_type != "qwen3":
            raise ModelRefused(f"model_type {model_type!r} cannot run; {SUPPORTED}")
        try:
            _refuse_unsupported(config)
            num_heads = int(config["num_attention_heads"])
            hidden_size = int(config["hidden_size"])
            parsed = cls(
                vocab_size=int(config["vocab_size"]),
                hidden_size=hidden_size,
                intermediate_size=int(config["intermediate_size"]),
                num_hidden_layers=int(config["num_hidden_layers"]),
                num_attention_heads=num_heads,
                num_key_value_heads=int(config.get("num_key_value_heads") or num_heads),
                head_dim=int(config.get("head_dim") or hidden_size // num_heads),
                max_position_embeddings=int(config["max_position_embeddings"]),
                rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
                rope_theta=float(_rope(config).get("rope_theta", config.get("rope_theta", 10_000.0))),
                tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
                dtype=str(config.get("dtype") or config.get("torch_dtype") or "float32"),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ModelRefused(f"config.json lacks or garbles something: {error!r}") from error
        parsed._refuse_impossible()
        return parsed

    def _refuse_impossible(self) -> None:
        numbers = (self.vocab_size, self.hidden_size, self.intermediate_size, self.num_hidden_layers)
        heads = (self.num_attention_heads, self.num_key_value_heads, self.head_dim, self.max_position_embeddings)
        if min(*numbers, *heads) < 1 or self.num_attention_heads % self.num_key_value_heads or self.head_dim % 2:
            raise ModelRefused(f"config.json describes no possible model: {self}")


def _rope(config: dict[str, Any]) -> dict[str, Any]:
    """RoPE's parameters under their name of transformers 5 or 4."""
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def _refuse_unsupported(config: dict[str, Any]) -> None:
    rope = _rope(config)
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if any(isinstance(value, dict) for value in rope.values()):
        raise ModelRefused(f"RoPE that differs between layers cannot run; {SUPPORTED}")
    if rope_type != "default":
        raise ModelRefused(f"RoPE scaling {rope_type!r} cannot run; {SUPPORTED}")
    layer_types = set(config.get("layer_types") or ())
    if config.get("use_sliding_window") or layer_types - {"full_attention"}:
        raise ModelRefused(f"layers with a sliding window of their own cannot run; {SUPPORTED}")
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise ModelRefused(f"activation {activation!r} cannot run; {SUPPORTED}")
    if config.get("quantization_config"):
        raise ModelRefused(f"quantized checkpoints cannot run; {SUPPORTED}")
