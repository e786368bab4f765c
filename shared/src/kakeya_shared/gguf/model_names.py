"""What a name of a model stands for, where that is a GGUF file: FILE.gguf, or ollama:NAME[:TAG]."""

import os
from pathlib import Path

from kakeya_shared.gguf import ollama_store
from kakeya_shared.gguf.gguf_file import SPLIT, SUFFIX, is_gguf


def file_of(model: str) -> Path | None:
    """The GGUF file that a name stands for, which may be missing; None: it stands for something else.

    Raises:
        GgufError: Ollama's store has no such model, or it cannot run here.
    """
    if model.startswith(ollama_store.PREFIX):
        return ollama_store.find(model.removeprefix(ollama_store.PREFIX)).path
    return Path(os.path.expanduser(model)) if is_gguf(model) else None


def served_name(model: str) -> str:
    """What clients call a model: the last part of its path or hub id, without what says that it is a GGUF file."""
    name = Path(model).name or model
    split = SPLIT.fullmatch(name)
    return split["name"] if split else name.removeprefix(ollama_store.PREFIX).removesuffix(SUFFIX)
