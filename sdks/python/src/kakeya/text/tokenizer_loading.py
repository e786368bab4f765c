"""A tokenizer as the libraries for such files read it; what they raise is told in one line, whatever it is."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from kakeya.errors import MissingExtra
from kakeya.text import tokenizer_files
from kakeya.text.tokenizer_error import TokenizerError

_PROBE = "a b"
# Files that vocabularies lie in, beside those that a class of transformers names itself.
_VOCABULARIES = ("tokenizer.json", "tekken.json", "vocab.*", "*.model", "*.tiktoken")


def load(name: str) -> tuple[Any, Path]:
    """A tokenizer of transformers that reads and writes text, and its directory.

    Args:
        name: a directory, or a model id of the Hugging Face Hub.

    Raises:
        MissingExtra: the extra [tokenizer] is not installed.
        TokenizerError: there is no such tokenizer, or its files are broken, or of a newer library than is installed.
    """
    # Said before transformers is imported, which warns that it finds no torch; no model is run here.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise MissingExtra("a tokenizer", "tokenizer") from error
    with _told(name):
        tokenizer, directory = AutoTokenizer.from_pretrained(name), tokenizer_files.directory(name)
        _check(tokenizer, directory)
        if tokenizer.is_fast:
            # Never set again: the library says "Already borrowed" when they are set while another thread encodes.
            tokenizer.backend_tokenizer.no_truncation()
            tokenizer.backend_tokenizer.no_padding()
        return tokenizer, directory


def _check(tokenizer: Any, directory: Path) -> None:
    """Raises ValueError, and whatever the library raises over a text."""
    # Without the file of its vocabulary a class of the library knows its special tokens alone, and says nothing of it.
    wanted = tokenizer.vocab_files_names.values()
    if wanted and not any(any(directory.glob(pattern)) for pattern in (*wanted, *_VOCABULARIES)):
        raise ValueError(f"the file of its vocabulary is missing ({', '.join(sorted(set(wanted)))})")
    if not isinstance(_template(tokenizer), str):
        raise ValueError(f"its chat template is no text but {_template(tokenizer)!r:.80}")
    tokenizer.decode(tokenizer.encode(_PROBE))


def _template(tokenizer: Any) -> object:
    """Any value where files are broken; "" where there is no chat template."""
    try:
        return tokenizer.get_chat_template()
    except ValueError:  # none, or several and none of them for chats
        return ""


@contextmanager
def _told(name: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        # Libraries in Rust raise plain Exceptions, and for their own faults a PanicException, which is none.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(f"no tokenizer can be loaded from {name!r}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """In one line; with the versions that were tried, where another might do."""
    line, *more = str(error).strip().splitlines() or [type(error).__name__]
    if line.endswith(":") and more:
        line = f"{line} {more[0].strip()}"
    if isinstance(error, OSError | ValueError):
        return line
    if type(error) is not Exception:
        line = f"{type(error).__name__}: {line}"
    versions = " and ".join(f"{library} {metadata.version(library)}" for library in ("transformers", "tokenizers"))
    return f"{line} (with {versions}; if it is of a newer one, install that)"
