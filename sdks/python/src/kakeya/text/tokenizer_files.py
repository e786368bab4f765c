"""Where a tokenizer's files are, and what the files beside it say of tokens."""

import json
import os
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from kakeya.text.tokenizer_error import TokenizerError

# Of a hub's model; never its weights.
_WANTED = (
    "tokenizer*",
    "*.tiktoken",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
    "generation_config.json",
    "config.json",
)
_GROUP = "kakeya.tokenizer_sources"
_GGUF, _OLLAMA = "gguf", "ollama:"
_PARTS = ("decoder", "generator", "text_config")  # of config.json, one of which is the language model's


def directory(name: str) -> Path:
    """The directory itself, one that is made of a GGUF file, or that of a hub's snapshot, which is downloaded.

    Raises:
        OSError, ValueError: the hub has no such model or does not answer, or the file holds no tokenizer that is known.
    """
    if os.path.isdir(name):  # False, too, for what is no path, where pathlib raises
        return Path(name)
    if name.startswith(_OLLAMA) or name.endswith(f".{_GGUF}") or os.path.isfile(name):
        return _made_of_gguf(name)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, allow_patterns=list(_WANTED)))


def _made_of_gguf(name: str) -> Path:
    """By a plugin: what reads such files is of the workers, too, which know nothing of this package.

    Raises:
        ValueError: none is installed, or the file holds no tokenizer that is known.
    """
    for point in entry_points(group=_GROUP, name=_GGUF):
        return Path(point.load()(name))
    raise ValueError("nothing here reads GGUF files; install it with: pip install kakeya-shared")


def eos_token_ids(directory: Path) -> list[int]:
    """What ends an answer by the files beside a tokenizer; empty where none says it.

    As transformers' `generate` does: by generation_config.json, else by config.json, else by the language model's part
    of that. Ids that the model cannot say, as configs of cut-down models have them, are left out.

    Raises:
        TokenizerError: one of them cannot be read.
    """
    generation, whole = directory / "generation_config.json", directory / "config.json"
    config = read(whole)
    part: dict[str, Any] = next((config[name] for name in _PARTS if isinstance(config.get(name), dict)), {})
    said = _ends(generation, read(generation)) or _ends(whole, config) or _ends(whole, part)
    vocab_size = part.get("vocab_size", config.get("vocab_size"))
    return [id_ for id_ in said if not isinstance(vocab_size, int) or id_ < vocab_size]


def read(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is no file.

    Raises:
        TokenizerError: it is no JSON object, or cannot be read.
    """
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise TokenizerError(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise TokenizerError(f"{path} cannot be read: it is no JSON object")
    return document


def _ends(path: Path, said: dict[str, Any]) -> list[int]:
    """Raises TokenizerError, which names the file."""
    eos = said.get("eos_token_id")
    ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
    if not all(_is_token_id(id_) for id_ in ids):
        raise TokenizerError(f"{path} cannot be read: eos_token_id is {eos!r}, neither a token id nor a list of them")
    return ids


def _is_token_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
