"""What a config.json says of a model, and what of it cannot run here."""

from dataclasses import asdict, dataclass
from typing import Any

from kakeya_worker.engine.seams.int8_slots import SCALE_BYTES
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.config_reader import ConfigReader, positive
from kakeya_worker.models.rope_scaling import RopeScaling

_KV_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}


@dataclass(frozen=True)
class ModelConfig:
    """A decoder of pre-norm layers with grouped-query attention, RoPE and a SwiGLU MLP.

    Attributes:
        max_positions: max_position_embeddings.
        tied_head: the embedding is the output head, too; by config.json, until `output_head.settled` asks the weights.
        sliding_window: the smallest window that a layer itself attends over; None where all attend to everything.
        qk_norm: queries and keys are normed head by head before RoPE.
        qkv_bias, output_bias, mlp_bias: which linear layers have one.
        layers_without_rope: indices of layers that do not rotate (NoPE).
        dtype: the checkpoint's own, as config.json says it; "" where that does not.
    """

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_positions: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling
    tied_head: bool
    dtype: str
    sliding_window: int | None = None
    qk_norm: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    layers_without_rope: tuple[int, ...] = ()

    def kv_bytes_per_token(self, kv_dtype: str) -> int:
        """K and V over all layers.

        Args:
            kv_dtype: float32, bfloat16, float16 or int8, whose heads have scales.
        """
        num_added = SCALE_BYTES if kv_dtype == "int8" else 0
        return 2 * self.num_layers * self.num_kv_heads * (self.head_dim * _KV_BYTES[kv_dtype] + num_added)

    @property
    def num_weights(self) -> int:
        """How many numbers all matrices hold; norms and biases are a thousandth of them."""
        attention = 2 * self.hidden_size * (self.num_heads + self.num_kv_heads) * self.head_dim
        tables = (1 if self.tied_head else 2) * self.vocab_size * self.hidden_size
        return tables + self.num_layers * (attention + 3 * self.hidden_size * self.intermediate_size)

    @property
    def bound_on_positions(self) -> tuple[int, str]:
        """What S + W may not exceed, and which of the model's numbers that is."""
        if self.sliding_window is not None and self.sliding_window < self.max_positions:
            return self.sliding_window, "the sliding window of the model's own layers"
        return self.max_positions, "the model's max_position_embeddings"

    @property
    def numbers(self) -> dict[str, Any]:
        """Everything that the logits depend on beside the weights; plain JSON."""
        numbers = asdict(self)
        del numbers["dtype"]  # the weights say it themselves
        if not self.rope_scaling.factors:  # digests of models without them are older than they are
            del numbers["rope_scaling"]["factors"]
        return numbers


def parse_decoder(
    config: ConfigReader,
    *,
    sliding_window: int | None = None,
    qk_norm: bool = False,
    qkv_bias: bool = False,
    output_bias: bool = False,
    mlp_bias: bool = False,
    layers_without_rope: tuple[int, ...] = (),
) -> ModelConfig:
    """Reads what all families have in common; a family says in what it differs.

    Args:
        config: with the family's own defaults for what a config.json leaves out.

    Raises:
        ModelRefused: the config describes no possible model, or one whose law this engine cannot keep.
    """
    _refuse_unsupported(config)
    num_heads, hidden_size = config.integer("num_attention_heads"), config.integer("hidden_size")
    rope = _rope_parameters(config)
    max_positions = config.integer("max_position_embeddings")
    parsed = ModelConfig(
        family=str(config.get("model_type")),
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=config.integer("intermediate_size"),
        num_layers=config.integer("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=config.integer("num_key_value_heads", num_heads),
        head_dim=config.integer("head_dim", hidden_size // num_heads),
        max_positions=max_positions,
        rms_norm_eps=config.number("rms_norm_eps", 1e-6),
        rope_theta=positive("rope_theta", rope.get("rope_theta")),
        rope_scaling=RopeScaling.parse(rope, max_positions),
        tied_head=config.flag("tie_word_embeddings"),
        dtype=str(config.get("dtype") or config.get("torch_dtype") or ""),
        sliding_window=sliding_window,
        qk_norm=qk_norm,
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        mlp_bias=mlp_bias,
        layers_without_rope=layers_without_rope,
    )
    if parsed.num_heads % parsed.num_kv_heads:
        raise ModelRefused(f"config.json: {num_heads} heads cannot share {parsed.num_kv_heads} KV heads evenly")
    if parsed.head_dim % 2:
        raise ModelRefused(f"config.json: RoPE needs an even head_dim, not {parsed.head_dim}")
    return parsed


def optional_sliding_window(config: ConfigReader, *, by_default: bool) -> int | None:
    """The window of the layers that have one, where a family lets the config switch it on (Qwen2, Qwen3, SmolLM3).

    Args:
        by_default: whether a layer has one where the config does not say which have.
    """
    if not config.flag("use_sliding_window") or config.get("sliding_window") is None:
        return None
    layer_types = config.entries("layer_types")
    is_active = "sliding_attention" in layer_types if layer_types else by_default
    return config.integer("sliding_window") if is_active else None


def has_windowed_layers(config: ConfigReader) -> bool:
    """Whether Qwen2 and Qwen3 give windows to some layers, those from `max_window_layers` on."""
    return config.integer("max_window_layers", least=0) < config.integer("num_hidden_layers")


def _rope_parameters(config: ConfigReader) -> dict[str, Any]:
    """Everything about RoPE: one object since transformers 5; before, a scaling, which wins; and top-level numbers."""
    rope = {name: config.get(name) for name in ("rope_theta", "partial_rotary_factor") if config.get(name) is not None}
    given = config.mapping("rope_scaling") or config.mapping("rope_parameters")
    if "type" in given:
        given = {"rope_type": given["type"], **given}
    return rope | {key: value for key, value in given.items() if value is not None}


def _refuse_unsupported(config: ConfigReader) -> None:
    if config.get("hidden_act", "silu") != "silu":
        raise ModelRefused(f"the activation {config.get('hidden_act')!r} cannot run; what can: silu")
    if config.get("quantization_config"):
        raise ModelRefused(
            "checkpoints that are quantized already cannot run; what can: floats, also with --weights int8"
        )
    others = {str(kind)[:40] for kind in config.entries("layer_types")} - {"full_attention", "sliding_attention"}
    if others:
        raise ModelRefused(f"layers of type {', '.join(sorted(others))} cannot run")
