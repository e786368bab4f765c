"""Keys and join tokens as text: what a client or a worker is given once and shows with each call.

A secret reads `kakeya_key_ID_RANDOM` or `kakeya_join_ID_RANDOM`. The id names it in lists, logs and traces. The
store keeps a digest of the whole text: with 256 random bits in it a fast digest cannot be searched for its origin, so
there is nothing for a slow one to protect.
"""

import hashlib
import re
import secrets
from dataclasses import dataclass
from enum import StrEnum

_ID_BYTES = 6
_SECRET_BYTES = 32
# The secret half: 32 bytes in base64url without padding.
_SECRET = re.compile(r"kakeya_(?P<kind>key|join)_(?P<id>[0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_ID = re.compile(r"[0-9a-f]{12}")


class Kind(StrEnum):
    """What a credential lets in."""

    KEY = "key"
    TOKEN = "join"  # noqa: S105  # a word of the format, not a secret


@dataclass(frozen=True, slots=True, repr=False)
class Minted:
    """A new credential; `secret` is shown once and kept nowhere, so `repr` does not show it either."""

    credential_id: str
    secret: str

    @property
    def digest(self) -> str:
        return digest(self.secret)


def mint(kind: Kind) -> Minted:
    """A new id and secret from the system's random source."""
    credential_id = secrets.token_hex(_ID_BYTES)
    return Minted(credential_id, f"kakeya_{kind.value}_{credential_id}_{secrets.token_urlsafe(_SECRET_BYTES)}")


def id_of(kind: Kind, secret: str) -> str | None:
    """The id within a secret; None where nothing like it was ever minted."""
    match = _SECRET.fullmatch(secret)
    return match["id"] if match and match["kind"] == kind.value else None


def is_id(text: str) -> bool:
    """Whether some credential may have this id."""
    return _ID.fullmatch(text) is not None


def digest(secret: str) -> str:
    """As the store keeps it: SHA-256 in hex."""
    return hashlib.sha256(secret.encode()).hexdigest()
