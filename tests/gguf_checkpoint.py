"""Checkpoints in the Hub's layout, written once more as GGUF files, by the format's own package.

As llama.cpp's converter does it: https://github.com/ggml-org/llama.cpp/blob/master/convert_hf_to_gguf.py.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from tests import gguf_k_quants

Tensors = Mapping[str, NDArray[np.float32]]
Say = Callable[[gguf.GGUFWriter], None]

_ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "smollm3": "smollm3"}
_PERMUTED = ("llama", "smollm3")
_TYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def write(
    path: Path,
    config: Mapping[str, Any],
    tensors: Tensors,
    kind: str = "F32",
    *,
    others: Mapping[str, str] | None = None,
    left_out: Sequence[str] = (),
    say: Say = lambda _: None,
) -> Path:
    """Writes a model; returns `path`.

    Args:
        config: its config.json.
        tensors: by the Hub's names.
        kind: of matrices, GGUF's name; all else is F32.
        others: of some matrices, by the last part of their names but "weight": v_proj, for one.
        left_out: keys that are not written.
        say: writes more.
    """
    architecture = _ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in _metadata(config, tensors).items():
        if key not in left_out:
            whole = f"{architecture}.{key}"
            add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
            add(whole, value)  # type: ignore[operator]  # the one for its type
    say(writer)
    names = gguf.get_tensor_name_map(_enum(architecture), config["num_hidden_layers"])
    for name, tensor in tensors.items():
        if name == "lm_head.weight" and config["tie_word_embeddings"]:
            continue
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if stored is None:
            raise LookupError(f"GGUF has no place for the tensor {name}")
        if architecture in _PERMUTED:
            tensor = _permuted(name, tensor, config)
        of_matrix = (others or {}).get(name.split(".")[-2], kind)
        _add(writer, stored, tensor, of_matrix if tensor.ndim > 1 else "F32")
    if factors := rope_factors(config):
        writer.add_tensor("rope_freqs.weight", np.array(factors, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_type(dtype: str) -> str:
    """GGUF's name of a type of config.json."""
    return _TYPES[dtype]


def rope_factors(config: Mapping[str, Any]) -> list[float]:
    """By what Llama 3 divides each frequency; none where a model's frequencies are not scaled so."""
    rope = config.get("rope_scaling") or {}
    if rope.get("rope_type") != "llama3":
        return []
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    original, head_dim = rope["original_max_position_embeddings"], _head_dim(config)
    factors = []
    for pair in range(head_dim // 2):
        wavelength = 2 * math.pi * config["rope_theta"] ** (2 * pair / head_dim)
        share = min(max((original / wavelength - low) / (high - low), 0.0), 1.0)
        factors.append(1 / ((1 - share) / factor + share))
    return factors


def _metadata(config: Mapping[str, Any], tensors: Tensors) -> dict[str, Any]:
    rope = config.get("rope_parameters") or {}
    said = {
        "vocab_size": config["vocab_size"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": _head_dim(config),
        "attention.value_length": _head_dim(config),
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.dimension_count": _head_dim(config),
        "rope.freq_base": float(rope.get("rope_theta") or config["rope_theta"]),
    }
    scaling = config.get("rope_scaling") or {}
    if scaling.get("type") == "linear":
        said |= {"rope.scaling.type": "linear", "rope.scaling.factor": scaling["factor"]}
    return said


def _head_dim(config: Mapping[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _permuted(name: str, tensor: NDArray[np.float32], config: Mapping[str, Any]) -> NDArray[np.float32]:
    """Rows that rotate together beside one another, as Llama's own files have them."""
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    module = name.split(".")[-2]
    if module not in heads:
        return tensor
    halves = tensor.reshape(config[heads[module]], 2, -1, *tensor.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(tensor.shape)


def _add(writer: gguf.GGUFWriter, name: str, tensor: NDArray[np.float32], kind: str) -> None:
    quantized = gguf.GGMLQuantizationType[kind]
    blocks = gguf_k_quants.quantize(tensor, kind) if kind.endswith("_K") else gguf.quants.quantize(tensor, quantized)
    writer.add_tensor(name, blocks, raw_dtype=quantized)


def _enum(architecture: str) -> gguf.MODEL_ARCH:
    return next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
