"""GGUF files on this host, each by what its first keys say: a list of fifty takes no second.

What stands behind the vocabulary is not looked at: a file that is cut off is noticed when it is loaded.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kakeya_shared.gguf import header, ollama_store
from kakeya_shared.gguf.gguf_error import GgufError
from kakeya_shared.gguf.gguf_file import SPLIT, SUFFIX, mapped, told
from kakeya_shared.gguf.tensor_types import RUNNABLE, quantization_name
from kakeya_shared.gguf.tokenizer import pre_tokenizers
from kakeya_worker.hub.cached import LocalModel
from kakeya_worker.models.gguf.gguf_config import ARCHITECTURES

FILE, OLLAMA = "file", "ollama"
_ARCHITECTURE: Final = "general.architecture"
_FILE_TYPE: Final = "general.file_type"
_KIND: Final = "tokenizer.ggml.model"
_PRE: Final = "tokenizer.ggml.pre"
_VOCABULARY: Final = "tokenizer.ggml.tokens"


class _Said(NamedTuple):
    """By a file: how it is named in a list, and what is amiss with it."""

    family: str
    quantization: str
    problem: str
    note: str


def in_folder(folder: Path) -> Iterator[LocalModel]:
    """All below a folder, by path; of several files of one model the first stands for all. Links are not followed."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            split = SPLIT.fullmatch(name)
            if name.endswith(SUFFIX) and (split is None or int(split["number"]) == 1):
                yield _model(Path(place, name))


def in_ollamas_store() -> Iterator[LocalModel]:
    """All of it, by name."""
    for model in ollama_store.models():
        said = _of_file(model.path)
        note = "; ".join(filter(None, [said.note, "what sees is left out" if model.has_projector else ""]))
        name = f"{ollama_store.PREFIX}{model.name}"
        yield LocalModel(name, OLLAMA, model.num_bytes, model.path, said.problem, said.family, said.quantization, note)


def _model(path: Path) -> LocalModel:
    said, files = _of_file(path), [path]
    problem = said.problem
    split = SPLIT.fullmatch(path.name)
    if split is not None:
        files = sorted(path.parent.glob(f"{split['name']}-?????-of-{split['count']}{SUFFIX}"))
        if len(files) != int(split["count"]):
            problem = f"{len(files)} of its {int(split['count'])} files are here"
    num_bytes = sum(file.stat().st_size for file in files)
    return LocalModel(str(path), FILE, num_bytes, path, problem, said.family, said.quantization, said.note)


def _of_file(path: Path) -> _Said:
    try:
        with told(path):
            said = header.first_entries(mapped(path), _VOCABULARY)
            architecture = said.text(_ARCHITECTURE)
            file_type = said.integer(_FILE_TYPE, -1, least=-1)
            tokenizer = said.text(_KIND), said.text(_PRE)
    except GgufError as error:
        return _Said("", "", str(error), "")
    quantization = quantization_name(file_type)
    return _Said(architecture, quantization, _problem(architecture, quantization), _note(*tokenizer, architecture))


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
