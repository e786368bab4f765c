"""GGUF files on this host, each by what its first keys say: a list of fifty takes no second.

What stands behind the vocabulary is not looked at, unless the model's size cannot be told without: to go past one takes
a hundred times what the rest does. So a file that is cut off is noticed when it is loaded.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from kakeya_shared.gguf import header, ollama_store
from kakeya_shared.gguf.gguf_error import GgufError
from kakeya_shared.gguf.gguf_file import SPLIT, SUFFIX, mapped, told
from kakeya_shared.gguf.tensor_types import RUNNABLE, quantization_name
from kakeya_shared.gguf.tokenizer import pre_tokenizers
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.hub.cached import LocalModel
from kakeya_worker.models.gguf import gguf_config, gguf_tensors
from kakeya_worker.models.gguf.gguf_config import ARCHITECTURES

FILE, OLLAMA = "file", "ollama"
_ARCHITECTURE: Final = "general.architecture"
_FILE_TYPE: Final = "general.file_type"
_KIND: Final = "tokenizer.ggml.model"
_PRE: Final = "tokenizer.ggml.pre"
_SIZES: Final = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
}
_VOCABULARY: Final = "tokenizer.ggml.tokens"


_EVERY_LAYER: Final = 9
"""Tensors that a layer has in each architecture: two norms, four matrices of attention, three of the MLP."""
_MORE_IN_A_LAYER: Final = {"qwen2": 3, "qwen3": 2}  # biases of q, k and v; norms of q and k


class _Said(NamedTuple):
    """By a file: how it is named in a list, what is amiss with it, and what config.json would say."""

    family: str
    quantization: str
    problem: str
    note: str
    config: dict[str, Any]


def in_folder(folder: Path) -> Iterator[LocalModel]:
    """All below a folder, by path; of several files of one model the first stands for all. Links are not followed."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            split = SPLIT.fullmatch(name)
            if name.endswith(SUFFIX) and (split is None or int(split["number"]) == 1):
                yield of_file(Path(place, name))


def in_ollamas_store() -> Iterator[LocalModel]:
    """All of it, by name."""
    for model in ollama_store.models():
        said = _of_file(model.path)
        note = "; ".join(filter(None, [said.note, "what sees is left out" if model.has_projector else ""]))
        name = f"{ollama_store.PREFIX}{model.name}"
        yield LocalModel(
            name, OLLAMA, model.num_bytes, model.path, said.problem, said.family, said.quantization, note, said.config
        )


def of_file(path: Path) -> LocalModel:
    """One of them; of a model that is split, its first file."""
    said, files = _of_file(path), [path]
    problem = said.problem
    split = SPLIT.fullmatch(path.name)
    if split is not None:
        files = sorted(path.parent.glob(f"{split['name']}-?????-of-{split['count']}{SUFFIX}"))
        if len(files) != int(split["count"]):
            problem = f"{len(files)} of its {int(split['count'])} files are here"
    num_bytes = sum(file.stat().st_size for file in files)
    return LocalModel(str(path), FILE, num_bytes, path, problem, said.family, said.quantization, said.note, said.config)


def _of_file(path: Path) -> _Said:
    try:
        with told(path):
            beginning = header.beginning(mapped(path), _VOCABULARY)
            said = beginning.metadata
            architecture = said.text(_ARCHITECTURE)
            file_type = said.integer(_FILE_TYPE, -1, least=-1)
            tokenizer = said.text(_KIND), said.text(_PRE)
    except GgufError as error:
        return _Said("", "", str(error), "", {})
    quantization = quantization_name(file_type)
    problem, note = _problem(architecture, quantization), _note(*tokenizer, architecture)
    return _Said(architecture, quantization, problem, note, {} if problem else _config(path, beginning))


def _config(path: Path, beginning: header.Beginning) -> dict[str, Any]:
    """What a config.json would say of the model's size; empty where the file cannot be read so far."""
    try:
        return _by_beginning(beginning) or gguf_config.config_of(gguf_tensors.opened(path))
    except (GgufError, ModelRefused):  # it is told when the model is loaded
        return {}


def _by_beginning(beginning: header.Beginning) -> dict[str, Any] | None:
    """None where that does not say it. Raises GgufError."""
    said = beginning.metadata
    architecture = said.text(_ARCHITECTURE)
    keys = {name: f"{architecture}.{key}" for name, key in _SIZES.items()}
    if not beginning.num_listed or any(key not in said for key in keys.values()):
        return None
    config: dict[str, Any] = {name: said.integer(key) for name, key in keys.items()}
    num_in_layers = config["num_hidden_layers"] * (_EVERY_LAYER + _MORE_IN_A_LAYER.get(architecture, 0))
    num_others = beginning.num_tensors - num_in_layers - 2  # without embedding and last norm
    # With one more than the layers need, a llama has a head of its own, or RoPE's factors.
    if num_others != 0 and (num_others != 1 or architecture == "llama"):
        return None
    key_length = f"{architecture}.attention.key_length"
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    return config | {
        "model_type": ARCHITECTURES[architecture].family,
        "vocab_size": beginning.num_listed,
        "head_dim": said.integer(key_length, head_dim),
        "tie_word_embeddings": num_others == 0,
    }


def _problem(architecture: str, quantization: str) -> str:
    if architecture not in ARCHITECTURES:
        return f"the architecture {architecture!r} cannot run"
    kind = quantization.removesuffix("_S").removesuffix("_M").removesuffix("_L")
    return f"weights of {quantization} cannot run" if kind and kind not in RUNNABLE else ""


def _note(kind: str, pre: str, architecture: str) -> str:
    if kind == "gpt2":
        try:
            pre_tokenizers.pre_tokenizer(pre, architecture)
        except GgufError:
            return f"on tokens alone: the pre-tokenizer {pre!r} is not known"
    return ""
