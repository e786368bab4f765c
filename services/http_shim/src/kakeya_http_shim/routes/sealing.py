"""What clients carry for this server, and cannot read: sealed by AES-GCM.

The key is that of a file which all servers are given, or one that this server has made. A key that a server made is
kept with the runtime, for the tenant of its client; what is sealed names its key, so that any server opens it.
"""

import base64
import binascii
import secrets
import time
import zlib
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kakeya import AsyncClient, KakeyaError, ObjectNotFound
from kakeya_http_shim.problems import from_kakeya

KEY_SECONDS: Final = 30 * 86_400
"""For which a key is kept with the runtime: the longest that it keeps anything."""
RENEW_SECONDS: Final = 86_400
"""After so long what is sealed has a new key."""
MAX_KEYS: Final = 1024
"""Of clients, and of what they bring, that are at hand."""
_VERSION: Final = b"\x01"
_NAME_BYTES, _NONCE_BYTES, _KEY_BYTES = 16, 12, 32
_MAX_BYTES: Final = 64 << 20
_LEAST_FILE_BYTES: Final = 32
_PURPOSE: Final = b"kakeya sealed"

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Unsealable(Exception):
    """It was not sealed for this, or its key is not there any more."""


@dataclass(frozen=True, slots=True)
class Seal:
    """Seals with one key.

    Attributes:
        name: of the key.
    """

    name: bytes
    cipher: AESGCM

    @classmethod
    def of(cls, name: bytes, key: bytes) -> "Seal":
        return cls(name, AESGCM(key))

    def sealed(self, data: bytes, purpose: str) -> str:
        """Data, packed and encrypted. What is sealed for one purpose is opened for no other."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        secret = self.cipher.encrypt(nonce, zlib.compress(data), _PURPOSE + purpose.encode())
        return base64.urlsafe_b64encode(_VERSION + self.name + nonce + secret).decode()

    def opened(self, text: bytes, purpose: str) -> bytes:
        """Of what stands behind the name. Raises Unsealable."""
        nonce, secret = text[:_NONCE_BYTES], text[_NONCE_BYTES:]
        try:
            unpacking = zlib.decompressobj()
            data = unpacking.decompress(self.cipher.decrypt(nonce, secret, _PURPOSE + purpose.encode()), _MAX_BYTES)
        except (InvalidTag, ValueError, zlib.error) as error:
            raise Unsealable from error
        if not unpacking.eof:
            raise Unsealable
        return data


def seal_of_file(path: Path) -> Seal:
    """Raises OSError, ValueError: it is too short."""
    secret = path.read_bytes().strip()
    if len(secret) < _LEAST_FILE_BYTES:
        raise ValueError(f"{path}: fewer than {_LEAST_FILE_BYTES} bytes are no key")
    key = blake2b(secret, digest_size=_KEY_BYTES, person=b"kakeya seal").digest()
    return Seal.of(blake2b(key, digest_size=_NAME_BYTES, person=b"kakeya key name").digest(), key)


class Seals:
    """Those of all clients.

    Args:
        of_file: the seal for all; None: each client has its own.
    """

    def __init__(self, of_file: Seal | None) -> None:
        self._of_file = of_file
        self._own: dict[str, tuple[float, Seal]] = {}
        self._known: dict[tuple[str, bytes], Seal] = {}

    async def seal(self, client: AsyncClient, api_key: str) -> Seal:
        """That of a client. Raises ApiError where the runtime fails."""
        if self._of_file is not None:
            return self._of_file
        made_at, seal = self._own.get(api_key, (0.0, None))
        if seal is not None and time.monotonic() - made_at < RENEW_SECONDS:
            return seal
        key, name = secrets.token_bytes(_KEY_BYTES), secrets.token_bytes(_NAME_BYTES)
        try:
            await client.store_object(_object(name), key, ttl_seconds=KEY_SECONDS)
        except KakeyaError as error:
            raise from_kakeya(error) from error
        seal = Seal.of(name, key)
        _remember(self._own, api_key, (time.monotonic(), seal))
        return seal

    async def opened(self, client: AsyncClient, api_key: str, text: str, purpose: str) -> bytes:
        """What was sealed. Raises Unsealable, and ApiError where the runtime fails."""
        try:
            data = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise Unsealable from error
        name, rest = data[1 : 1 + _NAME_BYTES], data[1 + _NAME_BYTES :]
        if data[:1] != _VERSION or len(rest) < _NONCE_BYTES:
            raise Unsealable
        if self._of_file is not None and name == self._of_file.name:
            return self._of_file.opened(rest, purpose)
        return (await self._found(client, api_key, name)).opened(rest, purpose)

    async def _found(self, client: AsyncClient, api_key: str, name: bytes) -> Seal:
        seal = self._known.get((api_key, name))
        if seal is None:
            try:
                found = await client.fetch_object(_object(name))
                seal = Seal.of(name, found.data)
            except (ObjectNotFound, ValueError) as error:
                raise Unsealable from error
            except KakeyaError as error:
                raise from_kakeya(error) from error
            _remember(self._known, (api_key, name), seal)
        return seal


def _object(name: bytes) -> str:
    return f"seal_{name.hex()}"


def _remember(known: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """In the place of what was remembered first, where there is no room."""
    if len(known) >= MAX_KEYS:
        del known[next(iter(known))]
    known[key] = value
