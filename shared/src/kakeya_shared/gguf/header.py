"""The header of a GGUF file: keys and values, and where its tensors lie.

Every size, count and offset is checked against the file before anything is done by it, so that a header that lies
costs no more than one that does not. What is decoded here stays below the file's own size, plus some 10 MB at the
most (MAX_KEYS, MAX_TENSORS); texts stay in the file until they are asked for.
"""

import struct
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from struct import Struct
from typing import Final, TypeVar

from kakeya_shared.gguf.gguf_error import GgufError
from kakeya_shared.gguf.metadata import LENGTH, Metadata, Text, Texts, Value
from kakeya_shared.gguf.tensor_types import TENSOR_TYPES, TensorType

MAX_KEYS: Final = 1 << 14
MAX_TENSORS: Final = 1 << 14
MAX_TEXTS: Final = 1 << 22
"""In lists; vocabularies have 2^18 and as many merges. To go past them takes half a second."""

MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_FIXED: Final = Struct("<4sIQQ")  # magic, version, number of tensors, number of keys
_COUNT: Final = Struct("<I")
_ARRAY: Final = Struct("<IQ")
_PLACE: Final = Struct("<IQ")  # a tensor's type and offset
_DAMAGED: Final = "it is cut off, or damaged: get it anew"
_LONGEST_NAME: Final = (1 << 16) - 1
_MAX_DIMENSIONS: Final = 4
_CODES: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_SCALARS: Final = {number: Struct(f"<{code}") for number, code in _CODES.items()} | {7: Struct("<?")}
_TEXT: Final = 8
_LIST: Final = 9
_Form = TypeVar("_Form")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies.

    Attributes:
        shape: the outermost dimension first; rows are the last one.
        start: in the file, in bytes.
    """

    name: str
    shape: tuple[int, ...]
    type: TensorType
    start: int
    num_bytes: int


@dataclass(frozen=True)
class Header:
    """Of one file.

    Attributes:
        metadata_end: in bytes; what stands before it is all that the file says of itself but for its tensors.
        tensors: by their names.
    """

    metadata: Metadata
    metadata_end: int
    tensors: dict[str, TensorInfo]


def read(content: memoryview) -> Header:
    """The header of a whole file. Raises GgufError."""
    with _cut_off_told():
        reader = _Reader(content)
        metadata, metadata_end = Metadata(content, dict(reader.entries())), reader.position
        return Header(metadata, metadata_end, reader.tensors(metadata.integer("general.alignment", 32)))


@dataclass(frozen=True)
class Beginning:
    """Of a header, up to a list that is not looked at.

    Attributes:
        metadata: what is said before the list.
        num_tensors: of the file.
        num_listed: how long the list is; 0 where there is none.
    """

    metadata: Metadata
    num_tensors: int
    num_listed: int


def beginning(content: memoryview, until: str) -> Beginning:
    """Keys and values before a key, of whose list the length alone is read. Raises GgufError."""
    with _cut_off_told():
        reader = _Reader(content)
        metadata = Metadata(content, dict(reader.entries(until)))
        return Beginning(metadata, reader.num_tensors, reader.num_listed)


@contextmanager
def _cut_off_told() -> Iterator[None]:
    try:
        yield
    except struct.error as error:
        raise GgufError("its header is cut off: get it anew") from error


class _Reader:
    """Reads on from its position. Raises GgufError, and struct.error at the end of the file."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        self._num_texts = 0
        if bytes(content[: len(MAGIC)]) != MAGIC:
            raise GgufError("it is no GGUF file")
        _, version, self.num_tensors, self._num_keys = _FIXED.unpack_from(content)
        if version not in _VERSIONS:
            other = " (or it is big-endian)" if version & 0xFFFF == 0 else ""
            raise GgufError(f"it has version {version} of the format{other}; what can be read: 2 and 3")
        if self._num_keys > MAX_KEYS or self.num_tensors > MAX_TENSORS:
            raise GgufError(
                f"it names {self._num_keys:,} keys and {self.num_tensors:,} tensors; no model has more than "
                f"{MAX_KEYS:,} and {MAX_TENSORS:,}"
            )
        self.position = _FIXED.size
        self.num_listed = 0

    def entries(self, until: str = "") -> Iterator[tuple[str, Value]]:
        """All of them, or those before a key, of whose value the length alone is read."""
        seen: set[str] = set()
        for _ in range(self._num_keys):
            key = self._name("key")
            if until and key == until:
                kind = self._unpack(_COUNT)[0]
                self.num_listed = self._unpack(_ARRAY)[1] if kind == _LIST else 0
                return
            if key in seen:
                raise GgufError(f"it says {key} twice")
            seen.add(key)
            yield key, self._value(key)

    def tensors(self, alignment: int) -> dict[str, TensorInfo]:
        """By their names."""
        if alignment & (alignment - 1):
            raise GgufError(f"general.alignment must be a power of two, not {alignment}")
        found = [self._tensor() for _ in range(self.num_tensors)]
        data = -(-self.position // alignment) * alignment
        tensors: dict[str, TensorInfo] = {}
        for name, shape, kind, offset in found:
            num_bytes = prod(shape) // kind.block_size * kind.block_bytes
            if name in tensors:
                raise GgufError(f"it has two tensors {name}")
            if offset % alignment:
                raise GgufError(f"tensor {name} begins at {offset}, which is no multiple of {alignment}")
            if data + offset + num_bytes > len(self._content):
                raise GgufError(f"tensor {name} ends behind the end of the file: {_DAMAGED}")
            tensors[name] = TensorInfo(name, shape, kind, data + offset, num_bytes)
        return tensors

    def _tensor(self) -> tuple[str, tuple[int, ...], TensorType, int]:
        """Name, shape, type and offset."""
        name = self._name("tensor's name")
        num_dimensions = self._unpack(_COUNT)[0]
        if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
            raise GgufError(f"tensor {name} has {num_dimensions} dimensions; what can be read: 1 to {_MAX_DIMENSIONS}")
        shape = tuple(self._unpack(LENGTH)[0] for _ in range(num_dimensions))[::-1]
        number, offset = self._unpack(_PLACE)
        kind = TENSOR_TYPES.get(number)
        if kind is None:
            raise GgufError(f"tensor {name} is of a type that is not known, number {number}")
        if 0 in shape or shape[-1] % kind.block_size:
            raise GgufError(f"tensor {name} of type {kind.name} cannot have the shape {shape}")
        return name, shape, kind, offset

    def _value(self, key: str) -> Value:
        kind = self._unpack(_COUNT)[0]
        if kind == _TEXT:
            return self._text(key)
        if kind == _LIST:
            return self._list(key, *self._unpack(_ARRAY))
        value: Value = self._unpack(_known(_SCALARS, kind, key))[0]
        return value

    def _list(self, key: str, kind: int, num: int) -> Value:
        if kind == _TEXT:
            return self._texts(key, num)
        numbers = array(_known(_CODES, kind, key))
        end = self.position + num * numbers.itemsize
        if end > len(self._content):
            raise GgufError(f"{key} ends behind the end of the file: {_DAMAGED}")
        numbers.frombytes(self._content[self.position : end])
        self.position = end
        return numbers

    def _texts(self, key: str, num: int) -> Texts:
        """Goes past them without decoding any."""
        self._num_texts += num
        if self._num_texts > MAX_TEXTS:
            raise GgufError(f"{key} has {num:,} texts; no vocabulary has more than {MAX_TEXTS:,}")
        texts = Texts(self.position, num)
        content, position, end, unpack = self._content, self.position, len(self._content), LENGTH.unpack_from
        for _ in range(num):
            position += LENGTH.size + unpack(content, position)[0]
            if position > end:
                raise GgufError(f"{key} ends behind the end of the file: {_DAMAGED}")
        self.position = position
        return texts

    def _text(self, what: str) -> Text:
        start = self.position + LENGTH.size
        end = start + self._unpack(LENGTH)[0]
        if end > len(self._content):
            raise GgufError(f"{what} ends behind the end of the file: {_DAMAGED}")
        self.position = end
        return Text(start, end)

    def _name(self, what: str) -> str:
        text = self._text(f"a {what}")
        if text.end - text.start > _LONGEST_NAME:
            raise GgufError(f"a {what} has {text.end - text.start:,} bytes")
        try:
            name = str(self._content[text.start : text.end], "utf-8")
        except UnicodeDecodeError as error:
            raise GgufError(f"a {what} is no UTF-8") from error
        if not name.isprintable():  # it stands in errors
            raise GgufError(f"a {what} holds letters that do not print: {name!r:.80}")
        return name

    def _unpack(self, form: Struct) -> tuple[int, ...]:
        unpacked = form.unpack_from(self._content, self.position)
        self.position += form.size
        return unpacked


def _known(forms: Mapping[int, _Form], kind: int, key: str) -> _Form:
    if kind not in forms:
        what = "lists of lists" if kind == _LIST else f"values of type {kind}"
        raise GgufError(f"{key} holds {what}, which are not known")
    return forms[kind]
