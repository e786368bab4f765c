"""What workers and clients keep of models on this host, so that it is made once."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from kakeya_shared.gguf.tokenizer import directory as tokenizers

_WEIGHTS: Final = ("gguf", "int8")
_PACKED: Final = "*.safetensors"


class Cache(NamedTuple):
    """A file or a folder that may be removed while nothing starts: it is made anew then.

    Attributes:
        kind: "gguf weights" or "int8 weights" of a model, or the "tokenizer" of a GGUF file.
        changed: when it was made.
    """

    kind: str
    path: Path
    num_bytes: int
    changed: datetime


def caches(directory: Path) -> Iterator[Cache]:
    """All of them, by kind and path.

    Args:
        directory: where workers keep what they made of models.

    Raises:
        GgufError: there is no home directory.
    """
    for weights in _WEIGHTS:
        for file in sorted((directory / weights).glob(_PACKED)):
            yield _cache(f"{weights} weights", file, [file])
    for folder in sorted(tokenizers.cache().glob("*/")):
        yield _cache("tokenizer", folder, [file for file in folder.iterdir() if file.is_file()])


def _cache(kind: str, path: Path, files: list[Path]) -> Cache:
    statuses = [file.stat() for file in files]
    newest = max((status.st_mtime for status in statuses), default=path.stat().st_mtime)
    return Cache(kind, path, sum(status.st_size for status in statuses), datetime.fromtimestamp(newest, UTC))
