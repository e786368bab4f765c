"""What a GGUF file says of itself: values by key, decoded when they are asked for."""

from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from kakeya_shared.gguf.gguf_error import GgufError

LENGTH: Final = Struct("<Q")
_LONGEST_TEXT: Final = 1 << 22
"""Bytes: the longest chat templates have a hundredth of it."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text that lies in a file.

    Attributes:
        start, end: in bytes.
    """

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts that lie in a file, one behind the other, each after its length.

    Attributes:
        start: in bytes.
    """

    start: int
    num: int


if TYPE_CHECKING:
    Numbers = array[Any]
else:  # it takes no parameters before Python 3.12
    Numbers = array
Value = bool | int | float | Text | Texts | Numbers


class Metadata:
    """Values by key. Each accessor raises GgufError where a value is of another kind, and names the key.

    Args:
        content: of the file.
        values: in the file's order.
    """

    def __init__(self, content: memoryview, values: Mapping[str, Value]) -> None:
        self._content = content
        self._values = values

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def keys(self) -> list[str]:
        """In the file's order."""
        return list(self._values)

    def is_one_of(self, key: str, values: Collection[float]) -> bool:
        """Whether a key's value is one of these numbers. Raises KeyError where the key is absent."""
        value = self._values[key]
        return isinstance(value, int | float) and value in values

    def integer(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number of at least `least`, and below 2^31."""
        value = self._values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
            raise _unfit(key, f"a whole number of at least {least}", value)
        return value

    def number(self, key: str, default: float) -> float:
        """A positive number."""
        value = self._values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-30 < value < 1e30:
            raise _unfit(key, "a positive number", value)
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._values.get(key, default)
        if not isinstance(value, bool):
            raise _unfit(key, "true or false", value)
        return value

    def text(self, key: str, default: str = "") -> str:
        value = self._values.get(key, default)
        if isinstance(value, str):
            return value
        if not isinstance(value, Text):
            raise _unfit(key, "a text", value)
        if value.end - value.start > _LONGEST_TEXT:
            raise GgufError(f"{key} has more than {_LONGEST_TEXT:,} bytes")
        return _decoded(self._content[value.start : value.end], key)

    def texts(self, key: str) -> Iterator[str]:
        """A list of texts, one after the other; none where the key is absent."""
        value = self._values.get(key, Texts(0, 0))
        if not isinstance(value, Texts):
            raise _unfit(key, "a list of texts", value)
        position = value.start
        for _ in range(value.num):
            start = position + LENGTH.size
            position = start + LENGTH.unpack_from(self._content, position)[0]
            yield _decoded(self._content[start:position], key)

    def numbers(self, key: str) -> Numbers | None:
        """A list of numbers; None where the key is absent."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, array):
            raise _unfit(key, "a list of numbers", value)
        return value

    def length(self, key: str) -> int:
        """Of a list; 0 where the key is absent."""
        value = self._values.get(key)
        return value.num if isinstance(value, Texts) else len(value) if isinstance(value, array) else 0


def _decoded(content: memoryview, key: str) -> str:
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError as error:
        raise GgufError(f"{key} holds a text that is no UTF-8") from error


def _unfit(key: str, due: str, value: object) -> GgufError:
    if value is None:
        return GgufError(f"it does not say {key}")
    kinds = {Text: "a text", Texts: "a list of texts", array: "a list of numbers"}
    return GgufError(f"{key} must be {due}, not {kinds.get(type(value)) or repr(value)}")
