"""A model's GGUF file, or the several ones that it is split over."""

import mmap
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from kakeya_shared.gguf import header
from kakeya_shared.gguf.gguf_error import GgufError
from kakeya_shared.gguf.header import Header, TensorInfo
from kakeya_shared.gguf.metadata import Metadata

SUFFIX: Final = ".gguf"
SPLIT: Final = re.compile(r"(?P<name>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_MAX_FILES: Final = 999


@dataclass(frozen=True)
class GgufPart:
    """One file, mapped read-only; its pages are read when they are looked at.

    Attributes:
        content: of the whole file.
    """

    path: Path
    content: memoryview
    header: Header


class GgufFile:
    """A model's file. Of a model that is split, any of its files names all of them.

    Args:
        path: of the file.

    Attributes:
        parts: its files, in their order.
        metadata: of the first one.
        tensors: of all of them, by their names, each with the file that holds it.

    Raises:
        GgufError: there is none, it is damaged, or files of it are missing.
    """

    def __init__(self, path: Path) -> None:
        self.parts = [read_part(file) for file in _files(path)]
        self.metadata: Metadata = self.parts[0].header.metadata
        self.tensors: dict[str, tuple[GgufPart, TensorInfo]] = {}
        for number, part in enumerate(self.parts):
            with told(part.path):
                self._take(number, part)

    @property
    def files(self) -> list[Path]:
        """In their order."""
        return [part.path for part in self.parts]

    @cached_property
    def num_weights(self) -> int:
        """How many numbers all matrices hold."""
        shapes = (tensor.shape for _, tensor in self.tensors.values())
        return sum(shape[0] * shape[1] for shape in shapes if len(shape) == 2)

    def bytes_of(self, name: str) -> memoryview:
        """A tensor as it is stored; the file's own pages. Raises KeyError."""
        part, tensor = self.tensors[name]
        return part.content[tensor.start : tensor.start + tensor.num_bytes]

    def _take(self, number: int, part: GgufPart) -> None:
        """Raises GgufError."""
        said = part.header.metadata
        count, own = said.integer("split.count", 0, least=0), said.integer("split.no", 0, least=0)
        if max(count, 1) != len(self.parts) or own != number:
            raise GgufError(
                f"it is file {own + 1} of {max(count, 1)} by what it says itself, and {number + 1} of "
                f"{len(self.parts)} by its name"
            )
        for name, tensor in part.header.tensors.items():
            if name in self.tensors:
                raise GgufError(f"tensor {name} is in another file, too")
            self.tensors[name] = part, tensor


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Inside, what goes wrong becomes a GgufError that names the file."""
    try:
        yield
    except (GgufError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise GgufError(f"{path} cannot be read: {reason}") from error


def mapped(path: Path) -> memoryview:
    """The content of a file, read when it is looked at. Raises GgufError and OSError."""
    # Before it is opened: what is no file may wait for ever.
    if not stat.S_ISREG(path.stat().st_mode):
        raise GgufError("it is no file")
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            raise GgufError("it is empty")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def is_gguf(path: str) -> bool:
    """Whether a name is that of a file in this format: by its end, or by its first bytes, as Ollama's have no end."""
    place = os.path.expanduser(path)
    if place.endswith(SUFFIX):
        return True
    if not os.path.isfile(place):
        return False
    with open(place, "rb") as file:
        return file.read(len(header.MAGIC)) == header.MAGIC


def read_part(path: Path) -> GgufPart:
    """One file, whether or not it is one of several. Raises GgufError."""
    with told(path):
        content = mapped(path)
        return GgufPart(path, content, header.read(content))


def _files(path: Path) -> list[Path]:
    """All files of a model that is split; else its own alone. Raises GgufError."""
    split = SPLIT.fullmatch(path.name)
    if split is None:
        return [path]
    count = int(split["count"])
    if not 1 <= count <= _MAX_FILES:
        raise GgufError(f"{path} cannot be read: no model has {count} files")
    files = [path.with_name(f"{split['name']}-{number:05}-of-{count:05}{SUFFIX}") for number in range(1, count + 1)]
    missing = [file.name for file in files if not file.exists()]
    if missing:
        raise GgufError(f"{path} is one of {count} files of a model, and here is no {', '.join(missing[:3])}")
    return files
