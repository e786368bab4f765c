"""What the tensors of a decoder are called in GGUF files, and on the Hugging Face Hub."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import structlog

from kakeya_worker.engine.seams.verifier import ModelRefused

EMBEDDING: Final = "token_embd.weight"
HEAD: Final = "output.weight"
ROPE_FACTORS: Final = "rope_freqs.weight"

_WHOLE: Final = {
    EMBEDDING: "model.embed_tokens.weight",
    HEAD: "lm_head.weight",
    "output_norm.weight": "model.norm.weight",
}
_OF_A_LAYER: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER: Final = re.compile(r"blk\.(?P<layer>\d{1,5})\.(?P<name>\w+)\.(?P<kind>weight|bias)")
# Of the parts of a model that see or hear, and of what those hand to its language model.
_OTHER_PARTS: Final = re.compile(r"(v|a|mm|s)\.")
_WITHOUT_EFFECT: Final = re.compile(r"blk\.\d+\.attn_rot_embd\.weight")
_ROTATED: Final = re.compile(r"blk\.\d+\.(?P<name>attn_[qk])\.(weight|bias)")

_log = structlog.get_logger()


def hub_names(stored: Collection[str]) -> dict[str, str]:
    """GGUF's names by the Hub's, of all tensors that belong to a language model; a log line tells what is left out.

    Raises:
        ModelRefused: the file holds what no family that can run has.
    """
    named = {hub: name for name in stored if (hub := _hub_name(name))}
    others = sorted(set(stored) - set(named.values()) - {ROPE_FACTORS})
    left_out = [name for name in others if _OTHER_PARTS.match(name)]
    unknown = [name for name in others if not _OTHER_PARTS.match(name) and not _WITHOUT_EFFECT.fullmatch(name)]
    if unknown:
        shown = ", ".join(unknown[:3]) + (", ..." if len(unknown) > 3 else "")
        raise ModelRefused(f"the file holds tensors that no model has that can run: {shown}")
    if left_out:
        _log.warning("parts that are no language model are left out", tensors=len(left_out), such_as=left_out[0])
    return named


def num_layers(stored: Iterable[str]) -> int:
    """How many layers the names are of; 0 where of none."""
    found = [int(match["layer"]) for name in stored if (match := _LAYER.fullmatch(name))]
    return max(found, default=-1) + 1


def rotated_heads(name: str, heads: Mapping[str, int]) -> int:
    """How many heads a tensor's rows belong to that RoPE turns; 0: it turns none of them.

    Args:
        name: GGUF's.
        heads: by `attn_q` and `attn_k`.
    """
    match = _ROTATED.fullmatch(name)
    return heads[match["name"]] if match else 0


def _hub_name(name: str) -> str | None:
    match = _LAYER.fullmatch(name)
    if match is None:
        return _WHOLE.get(name)
    module = _OF_A_LAYER.get(match["name"])
    return f"model.layers.{match['layer']}.{module}.{match['kind']}" if module else None
