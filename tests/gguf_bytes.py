"""GGUF files byte by byte, those that nobody should write too."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

U8, U32, I32, F32, BOOL, TEXT, LIST, U64, F64 = 0, 4, 5, 6, 7, 8, 9, 10, 12
_FORMS = {
    U8: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    U32: "<I",
    I32: "<i",
    F32: "<f",
    BOOL: "<?",
    U64: "<Q",
    11: "<q",
    F64: "<d",
}


@dataclass(frozen=True)
class Typed:
    """A value of a type that its Python type does not tell.

    Attributes:
        items: of a list, their type.
    """

    value: Any
    kind: int
    items: int = U32


@dataclass(frozen=True)
class Tensor:
    """A tensor.

    Attributes:
        dimensions: the innermost first, as files have them.
        offset: None: behind the one before.
    """

    name: str
    dimensions: Sequence[int]
    kind: int
    content: bytes
    offset: int | None = None


def text(content: str | bytes) -> bytes:
    encoded = content.encode() if isinstance(content, str) else content
    return struct.pack("<Q", len(encoded)) + encoded


def value(given: Any) -> bytes:
    """With its type in front."""
    typed = given if isinstance(given, Typed) else Typed(given, _kind(given), _items(given))
    if typed.kind == LIST:
        return struct.pack("<IIQ", LIST, typed.items, len(typed.value)) + b"".join(
            _bare(each, typed.items) for each in typed.value
        )
    return struct.pack("<I", typed.kind) + _bare(typed.value, typed.kind)


def gguf(
    metadata: Mapping[str, Any] | Sequence[tuple[str | bytes, Any]] = (),
    tensors: Sequence[Tensor] = (),
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    num_keys: int | None = None,
    num_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A file; what is said of it may be untrue."""
    entries = list(metadata.items()) if isinstance(metadata, Mapping) else list(metadata)
    counts = (len(tensors) if num_tensors is None else num_tensors, len(entries) if num_keys is None else num_keys)
    header = magic + struct.pack("<IQQ", version, *counts)
    header += b"".join(text(key) + value(given) for key, given in entries)
    data = b""
    for tensor in tensors:
        data += bytes(-len(data) % alignment)
        offset = len(data) if tensor.offset is None else tensor.offset
        header += text(tensor.name) + struct.pack("<I", len(tensor.dimensions))
        header += struct.pack(f"<{len(tensor.dimensions)}Q", *tensor.dimensions)
        header += struct.pack("<IQ", tensor.kind, offset)
        data += tensor.content
    return header + bytes(-len(header) % alignment) + data if tensors else header


def _bare(given: Any, kind: int) -> bytes:
    return text(given) if kind == TEXT else struct.pack(_FORMS.get(kind, "<I"), given)


def _kind(given: Any) -> int:
    return {bool: BOOL, int: U32, float: F32, str: TEXT, bytes: TEXT, list: LIST}[type(given)]


def _items(given: Any) -> int:
    if not isinstance(given, list) or not given:
        return TEXT
    return I32 if isinstance(given[0], int) and not isinstance(given[0], bool) else _kind(given[0])
