"""Where a tokenizer's files are, and what the files beside it say of tokens."""

import json
from pathlib import Path
from typing import Any

from kakeya.text.tokenizer_error import TokenizerError

_WANTED = ("tokenizer*", "generation_config.json", "config.json")  # of a hub's model; never its weights


def directory(name: str) -> Path:
    """The directory itself, or that of a hub's snapshot, where the files come to that are not there yet.

    Raises:
        OSError, ValueError: the hub has no such model or does not answer.
    """
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, allow_patterns=list(_WANTED)))


def generation_eos_token_ids(directory: Path) -> list[int]:
    """What ends an answer by generation_config.json; empty where there is none or it does not say.

    Raises:
        TokenizerError: the file cannot be read.
    """
    path = directory / "generation_config.json"
    try:
        eos = json.loads(path.read_bytes()).get("eos_token_id")
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
