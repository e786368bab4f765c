"""JSON as it is kept with the runtime: in zlib's format."""

import json
import zlib
from typing import Any, Final

MAX_BYTES: Final = 64 << 20
"""Of what is unpacked. An object has 1 MiB at most, which who speaks to the runtime could have made of far more."""
_LEVEL: Final = 1
"""A third of the time of zlib's own choice, for a quarter more bytes: clients wait for it."""


class Unreadable(Exception):
    """It is none that this version of the server has kept."""


def packed(told: Any) -> bytes:
    """For the runtime, which does not look inside."""
    return zlib.compress(json.dumps(told, separators=(",", ":")).encode(), _LEVEL)


def unpacked(data: bytes, max_bytes: int = MAX_BYTES) -> tuple[Any, int]:
    """What was packed, and how many bytes it was then. Raises Unreadable: it is nothing, or more than `max_bytes`."""
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(data, max_bytes)
        if not unpacking.eof:
            raise Unreadable
        return json.loads(text), len(text)
    except (zlib.error, ValueError) as error:
        raise Unreadable from error
