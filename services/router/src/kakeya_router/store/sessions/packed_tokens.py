"""Tokens as the journal keeps them: 4 bytes each, little-endian."""

import struct
from collections.abc import Sequence

BYTES_PER_TOKEN = 4


def pack(token_ids: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(token_ids)}I", *token_ids)


def unpack(packed: bytes) -> list[int]:
    """The reverse of `pack`."""
    return list(struct.unpack(f"<{len(packed) // BYTES_PER_TOKEN}I", packed))
