"""Where a tokenizer's files are, and what the files beside it say of tokens."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kakeya.text.tokenizer_error import TokenizerError

_WANTED = ("tokenizer*", "generation_config.json", "config.json")  # of a hub's model; never its weights
_PARTS = ("decoder", "generator", "text_config")  # of config.json, one of which is the language model's


def directory(name: str) -> Path:
    """The directory itself, or that of a hub's snapshot, where the files come to that are not there yet.

    Raises:
        OSError, ValueError: the hub has no such model or does not answer.
    """
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, allow_patterns=list(_WANTED)))


def eos_token_ids(directory: Path) -> list[int]:
    """What ends an answer by the files beside a tokenizer; empty where none says it.

    As transformers' `generate` does: by generation_config.json, else by config.json, else by the language model's part
    of that.

    Raises:
        TokenizerError: one of them cannot be read.
    """
    said = _eos_token_ids(directory / "generation_config.json", ())
    return said or _eos_token_ids(directory / "config.json", _PARTS)


def _eos_token_ids(path: Path, parts: Sequence[str]) -> list[int]:
    """Of a file or, where that is silent, of one of its parts. Raises TokenizerError."""
    try:
        config = json.loads(path.read_bytes())
        part = next((config[name] for name in parts if config.get(name)), config)
        eos = next((each["eos_token_id"] for each in (config, part) if each.get("eos_token_id") is not None), None)
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError, AttributeError) as error:  # the last: it is no JSON object
        raise TokenizerError(f"{path} cannot be read: {error}") from error
    ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
    if not all(_is_token_id(id_) for id_ in ids):
        raise TokenizerError(f"{path} cannot be read: eos_token_id is {eos!r}, neither a token id nor a list of them")
    return ids


def _is_token_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
