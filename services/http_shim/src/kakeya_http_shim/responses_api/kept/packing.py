"""JSON as it is kept with the runtime: in zlib's format; several of them as a log.

A record of a log is its length (4 bytes, the highest first) and so many bytes.
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

MAX_BYTES: Final = 64 << 20
"""Of what is unpacked. An object has 1 MiB at most, which who speaks to the runtime could have made of far more."""
_LEVEL: Final = 1
"""A third of the time of zlib's own choice, for a quarter more bytes: clients wait for it."""
_LENGTH_BYTES: Final = 4


class Unreadable(Exception):
    """It is none that this version of the server has kept."""


def text(told: Any) -> str:
    """As it is packed: ASCII, so that a letter is a byte."""
    return json.dumps(told, separators=(",", ":"))


def packed(told: Any) -> bytes:
    """For the runtime, which does not look inside."""
    return compressed(text(told).encode())


def listed(texts: Iterable[str]) -> bytes:
    """The text of a list of what has these."""
    return f"[{','.join(texts)}]".encode()


def compressed(told: bytes) -> bytes:
    """A text, packed."""
    return zlib.compress(told, _LEVEL)


class Unpacking:
    """Unpacks what belongs together.

    Args:
        max_bytes: of all of it, unpacked.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._num_left = max_bytes

    def unpacked(self, data: bytes) -> tuple[Any, bytes]:
        """What was packed, and its text. Raises Unreadable: it is nothing, or too much."""
        unpacking = zlib.decompressobj()
        try:
            told = unpacking.decompress(data, self._num_left) if self._num_left else b""  # 0 would be no limit
            self._num_left -= len(told)
            if not unpacking.eof:
                raise Unreadable
            return json.loads(told), told
        except (zlib.error, ValueError) as error:
            raise Unreadable from error


def log(records: Iterable[bytes]) -> bytes:
    """Records, one behind the other."""
    return b"".join(part for record in records for part in (len(record).to_bytes(_LENGTH_BYTES), record))


def records(data: bytes) -> Iterator[bytes]:
    """Those of a log. What is none gives such as nobody can unpack."""
    place = 0
    while place < len(data):
        start = place + _LENGTH_BYTES
        place = start + int.from_bytes(data[place:start])
        yield data[start:place]
