"""A tokenizer as the libraries for such files read it; what they raise is told in one line, whatever it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from kakeya.errors import MissingExtra
from kakeya.text import text_tokenizer, tokenizer_files
from kakeya.text.text_tokenizer import TextTokenizer
from kakeya.text.tokenizer_error import TokenizerError

_PROBE = "a b"
_FILE = "tokenizer.json"
# What vocabularies lie in otherwise, which only the libraries of their makers read.
_OTHER_VOCABULARIES = ("*.model", "*.model.v*", "tekken.json", "*.tiktoken", "vocab.*")


def load(name: str) -> tuple[TextTokenizer, Path]:
    """A tokenizer, and its directory.

    Args:
        name: a directory, FILE.gguf, ollama:NAME[:TAG], or a model id of the Hugging Face Hub.

    Raises:
        MissingExtra: the extra [tokenizer] is not installed.
        TokenizerError: there is no such tokenizer, or its files are broken, or of a newer library than is installed.
    """
    try:
        import tokenizers  # noqa: F401 -- whether it is there
    except ImportError as error:
        raise MissingExtra("a tokenizer", "tokenizer") from error
    with _told(name):
        directory = tokenizer_files.directory(name)
        _check_vocabulary(directory)
        tokenizer = text_tokenizer.load(directory)
        tokenizer.decode(tokenizer.encode(_PROBE, special_tokens=True))
        return tokenizer, directory


def _check_vocabulary(directory: Path) -> None:
    """Raises ValueError where there is no tokenizer.json, with the cure."""
    if (directory / _FILE).is_file():
        return
    others = sorted({path.name for pattern in _OTHER_VOCABULARIES for path in directory.glob(pattern)})
    if not others:
        raise ValueError(f"it has no {_FILE}")
    raise ValueError(
        f"it has no {_FILE}, only {', '.join(others)}; write one once, where transformers and sentencepiece are "
        f"installed: python -c \"from transformers import AutoTokenizer as T; T.from_pretrained('{directory}')"
        f".save_pretrained('{directory}')\""
    )


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
    """In one line; with the version that was tried, where another might do."""
    line = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError | ValueError | TokenizerError):
        return line
    if type(error) is not Exception:
        return f"{type(error).__name__}: {line}"
    return f"{line} (with tokenizers {metadata.version('tokenizers')}; if it is of a newer one, install that)"
