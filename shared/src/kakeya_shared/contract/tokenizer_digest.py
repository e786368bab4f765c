"""The digest of a tokenizer, by which a client tells whether its own belongs to the model that is served."""

import hashlib
import json
from pathlib import Path
from typing import Any

# What does not decide which ids a text has: how batches are cut and filled, and the version of the format.
_LEFT_OUT = ("truncation", "padding", "version")


class TokenizerError(ValueError):
    """A tokenizer.json that cannot be read; the message says why."""


def tokenizer_digest(directory: Path) -> str:
    """SHA-256 in hex over the canonical form of a checkpoint's tokenizer.json; "" where the directory holds none.

    The canonical form is the JSON object without its keys `truncation`, `padding` and `version`, all keys sorted, no
    white space, nothing escaped that need not be, in UTF-8: who saves the same tokenizer again gets the same digest.

    Raises:
        TokenizerError: tokenizer.json cannot be read or is no JSON object.
    """
    path = directory / "tokenizer.json"
    try:
        return hashlib.sha256(_canonical(json.loads(path.read_bytes()))).hexdigest()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, RecursionError) as error:
        raise TokenizerError(f"{path} cannot be read: {error}") from error


def _canonical(tokenizer: Any) -> bytes:
    """Raises ValueError: it is no JSON object."""
    if not isinstance(tokenizer, dict):
        raise ValueError("it is not a JSON object")
    kept = {key: value for key, value in tokenizer.items() if key not in _LEFT_OUT}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    # JSON may escape one half of a surrogate pair; UTF-8 proper has no bytes for it.
    return text.encode(errors="surrogatepass")
