"""A digest of a history, against damage: equal however tokens came into it, extended in time that the new ones cost.

A one and the tokens are the digits of one number with the base 2**32, the first one the highest; the digest is what is
left of it modulo two primes below 2**26. So a script in Redis computes it, too, in the doubles that Lua has
(kakeya_router/store/lua/prelude.lua). Of two histories that differ at random it is equal once in 2**52. It is no
protection against an attacker who wants that.
"""

import struct
from collections.abc import Sequence

PRIMES = (65431043, 58560287)
"""Modulo either 2**32 is large, and takes over 29 million powers to come back to 1: what changes places is noticed."""

EMPTY_HISTORY = 1 << 32 | 1
"""The digest of no tokens."""

_BASE_BITS = 32


def extended_digest(digest: int, token_ids: Sequence[int]) -> int:
    """The digest of a history that tokens were added to; 64 bits, a rest in each half."""
    number = int.from_bytes(struct.pack(f">{len(token_ids)}I", *token_ids), "big")
    first, second = PRIMES
    shift = _BASE_BITS * len(token_ids)
    rest = ((digest >> 32) * pow(2, shift, first) + number) % first
    other_rest = ((digest & 0xFFFFFFFF) * pow(2, shift, second) + number) % second
    return rest << 32 | other_rest
