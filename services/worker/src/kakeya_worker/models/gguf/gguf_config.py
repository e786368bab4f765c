"""What a GGUF file says of its model, in the words of a config.json.

What it leaves out is the family's own default, as everywhere, or is seen from its tensors: files of Ollama's own say
less than those of llama.cpp.
"""

import math
from typing import Any, Final, NamedTuple

import numpy as np

from kakeya_shared.gguf.gguf_error import GgufError
from kakeya_shared.gguf.gguf_file import GgufFile
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.gguf import tensor_names


class Architecture(NamedTuple):
    """How llama.cpp writes models of a family.

    Attributes:
        family: the value of `model_type`.
        permutes: rows of queries and keys lie in pairs that rotate together, as Llama's makers had them, not in
            halves.
    """

    family: str
    permutes: bool


ARCHITECTURES: Final = {
    "llama": Architecture("llama", permutes=True),
    "qwen2": Architecture("qwen2", permutes=False),
    "qwen3": Architecture("qwen3", permutes=False),
    "smollm3": Architecture("smollm3", permutes=True),
}
"""By `general.architecture`; "llama" is also how Mistral's and SmolLM's models are written."""

_ATTENTION_BIASES: Final = ("attn_q", "attn_k", "attn_v", "attn_output")
_MLP_BIASES: Final = ("ffn_gate", "ffn_up", "ffn_down")
# What changes a model's logits and this engine does not compute: by their key, and the values that change nothing.
_UNKNOWN_HERE: Final = {
    "expert_count": (0,),
    "logit_scale": (0, 1),
    "residual_scale": (0, 1),
    "embedding_scale": (0, 1),
    "attention.scale": (0,),
    "attn_logit_softcapping": (0,),
    "final_logit_softcapping": (0,),
    "attention.clamp_kqv": (0,),
    "attention.temperature_scale": (0,),
    "attention.max_alibi_bias": (0,),
}


def architecture_of(file: GgufFile) -> Architecture:
    """Raises ModelRefused where no family of ours is written so; GgufError."""
    name = file.metadata.text("general.architecture")
    if name not in ARCHITECTURES:
        raise ModelRefused(f"the architecture {name!r} cannot run; what can: {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name]


def config_of(file: GgufFile) -> dict[str, Any]:
    """Raises ModelRefused: the file does not describe a model that can run."""
    try:
        return _Description(file).config()
    except GgufError as error:
        raise ModelRefused(f"{file.files[0]}: {error}") from error


class _Description:
    """One file's, by keys without the architecture's name in front."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self._said = file.metadata
        self._architecture = architecture_of(file)
        self._name = file.metadata.text("general.architecture")

    def config(self) -> dict[str, Any]:
        self._refuse_unknown()
        vocab_size, hidden_size = self._shape(tensor_names.EMBEDDING)
        num_heads = self._integer("attention.head_count", None)
        head_dim = self._shape("blk.0.attn_q.weight")[0] // num_heads
        self._agrees("embedding_length", hidden_size)
        self._agrees("attention.key_length", head_dim)
        self._agrees("attention.value_length", head_dim)
        found: dict[str, Any] = {
            "model_type": self._architecture.family,
            "vocab_size": vocab_size,
            "hidden_size": hidden_size,
            "intermediate_size": self._integer("feed_forward_length", self._shape("blk.0.ffn_gate.weight")[0]),
            "num_hidden_layers": self._integer("block_count", tensor_names.num_layers(self._file.tensors)),
            "num_attention_heads": num_heads,
            "num_key_value_heads": self._integer("attention.head_count_kv", num_heads),
            "head_dim": head_dim,
            "tie_word_embeddings": tensor_names.HEAD not in self._file.tensors,
            "attention_bias": any(self._has_bias(name) for name in _ATTENTION_BIASES),
            "mlp_bias": any(self._has_bias(name) for name in _MLP_BIASES),
            "use_sliding_window": False,
            "rope_parameters": self._rope(head_dim),
        }
        if self._key("context_length") in self._said:
            found["max_position_embeddings"] = self._integer("context_length", None)
        if self._key("attention.layer_norm_rms_epsilon") in self._said:
            found["rms_norm_eps"] = self._said.number(self._key("attention.layer_norm_rms_epsilon"), 0.0)
        if self._name == "llama" and self._key("attention.sliding_window") in self._said:
            found |= {"model_type": "mistral", "sliding_window": self._integer("attention.sliding_window", None)}
        return found

    def _rope(self, head_dim: int) -> dict[str, Any]:
        rope: dict[str, Any] = {"rope_type": "default"}
        if self._key("rope.freq_base") in self._said:
            rope["rope_theta"] = self._said.number(self._key("rope.freq_base"), 0.0)
        factor = self._said.number(
            self._key("rope.scaling.factor"), self._said.number(self._key("rope.scale_linear"), 1.0)
        )
        kind = self._said.text(self._key("rope.scaling.type"), "linear")  # the older of the two says no type
        if kind == "linear" and factor != 1.0:
            rope |= {"rope_type": "linear", "factor": factor}
        elif kind not in ("linear", "none"):
            rope["rope_type"] = kind
        rotated = self._integer("rope.dimension_count", head_dim)
        if rotated != head_dim:
            rope["partial_rotary_factor"] = rotated / head_dim
        if tensor_names.ROPE_FACTORS in self._file.tensors:
            rope |= {"rope_type": "factors", "factors": self._factors(head_dim)}
        return rope

    def _factors(self, head_dim: int) -> list[float]:
        """By what each frequency is divided, as Llama 3's files have them in place of a scaling's parameters."""
        (num,) = self._shape(tensor_names.ROPE_FACTORS)
        if self._file.tensors[tensor_names.ROPE_FACTORS][1].type.name != "F32" or num != head_dim // 2:
            raise ModelRefused(f"{tensor_names.ROPE_FACTORS} must hold {head_dim // 2} numbers of type F32")
        factors = np.frombuffer(self._file.bytes_of(tensor_names.ROPE_FACTORS), "<f4")
        if not all(math.isfinite(factor) and factor > 0 for factor in factors):
            raise ModelRefused(f"{tensor_names.ROPE_FACTORS} must hold positive numbers")
        return [float(factor) for factor in factors]

    def _refuse_unknown(self) -> None:
        for name, without_effect in _UNKNOWN_HERE.items():
            key = self._key(name)
            if key in self._said and not self._said.is_one_of(key, without_effect):
                raise ModelRefused(f"{self._file.files[0]} says {key}, which cannot run")
        if not self._said.flag(self._key("attention.causal"), default=True):
            raise ModelRefused(f"{self._file.files[0]} is no model that generates: its attention is not causal")

    def _has_bias(self, name: str) -> bool:
        return f"blk.0.{name}.bias" in self._file.tensors

    def _shape(self, tensor: str) -> tuple[int, ...]:
        if tensor not in self._file.tensors:
            raise ModelRefused(f"{self._file.files[0]} holds no tensor {tensor}")
        return self._file.tensors[tensor][1].shape

    def _integer(self, name: str, default: int | None) -> int:
        return self._said.integer(self._key(name), default)

    def _agrees(self, name: str, seen: int) -> None:
        said = self._integer(name, seen)
        if said != seen:
            raise ModelRefused(f"{self._file.files[0]} says that {self._key(name)} is {said}; its tensors say {seen}")

    def _key(self, name: str) -> str:
        return f"{self._name}.{name}"
