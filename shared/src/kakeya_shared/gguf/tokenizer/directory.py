"""The files of a GGUF file's tokenizer, written once to a cache, as they lie beside a checkpoint of the Hub."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Final

from kakeya_shared.gguf.gguf_error import GgufError
from kakeya_shared.gguf.gguf_file import GgufPart, read_part
from kakeya_shared.gguf.metadata import Metadata
from kakeya_shared.gguf.model_names import file_of
from kakeya_shared.gguf.tokenizer.tokenizer_json import tokenizer_of
from kakeya_shared.gguf.tokenizer.vocabulary import Vocabulary
from kakeya_shared.process.whole_file import replacing

_MADE_BY: Final = b"kakeya tokenizer 1"
"""Another number makes all directories anew: what is made of a file has changed."""
_TEMPLATE: Final = "tokenizer.chat_template"


def tokenizer_directory(model: str) -> str:
    """The directory of a model's tokenizer, by FILE.gguf or ollama:NAME[:TAG].

    Raises:
        GgufError: there is no such file, it holds no tokenizer that is known, or the cache cannot be written.
    """
    file = file_of(model)
    if file is None:
        raise GgufError(f"{model} is no GGUF file")
    return str(of_file(file))


def of_file(path: Path) -> Path:
    """Of a model's file, or the first of several: the others say nothing of it. Raises GgufError."""
    part = read_part(path)
    directory = cache() / _digest(part)
    last = directory / "tokenizer.json"
    if last.is_file():
        return directory
    said = part.header.metadata
    try:
        tokenizer, vocabulary = tokenizer_of(said)
        files = {
            "generation_config.json": {"eos_token_id": vocabulary.ends},
            "tokenizer_config.json": _config(said, vocabulary),
            last.name: tokenizer,  # what was broken off is not taken for whole
        }
    except GgufError as error:
        raise GgufError(f"{path} has no tokenizer that can be used: {error}") from error
    try:
        for name, content in files.items():
            with replacing(directory / name) as temporary:
                temporary.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8", errors="surrogatepass")
    except OSError as error:
        raise GgufError(f"the tokenizer of {path} cannot be kept in {directory}: {error.strerror or error}") from error
    return directory


def _config(said: Metadata, vocabulary: Vocabulary) -> dict[str, Any]:
    config: dict[str, Any] = {part: vocabulary.tokens[id_] for part, id_ in vocabulary.parts.items()}
    named = {name: said.text(f"{_TEMPLATE}.{name}") for name in said.texts("tokenizer.chat_templates")}
    default = said.text(_TEMPLATE)
    if named:
        templates = {"default": default, **named}
        config["chat_template"] = [
            {"name": name, "template": template} for name, template in templates.items() if template
        ]
    elif default:
        config["chat_template"] = default
    return config | {"clean_up_tokenization_spaces": False}


def cache() -> Path:
    """Of all such directories, by XDG's base directory specification. Raises GgufError: there is no home directory."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if home.startswith("~"):
        raise GgufError("there is no home directory to keep a tokenizer in: set HOME or XDG_CACHE_HOME")
    return Path(home) / "kakeya" / "tokenizers"


def _digest(part: GgufPart) -> str:
    """Of all that the file says of itself but for its tensors."""
    hashed = hashlib.sha256(_MADE_BY)
    hashed.update(part.content[: part.header.metadata_end])
    return hashed.hexdigest()
