"""The keys of a snapshot store, in a file: the first encrypts, all of them decrypt."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import structlog

MAKE = "openssl rand -hex 32"
_KEY = re.compile("[0-9a-fA-F]{64}")
_MAX_BYTES = 1 << 16
_OTHERS = 0o077
_ID_BYTES = 8

_log = structlog.get_logger()


class KeyFileError(Exception):
    """The file is of no use; the message says why, and nothing of what is in it."""


@dataclass(frozen=True)
class Key:
    """256 bits for AES. Not shown anywhere."""

    secret: bytes

    @property
    def id(self) -> bytes:
        """8 bytes that name it in files, of a digest: they tell nothing of the key."""
        return hashlib.sha256(b"kakeya snapshot key" + self.secret).digest()[:_ID_BYTES]

    def __repr__(self) -> str:
        return f"Key({self.id.hex()})"


def read_keys(path: Path) -> list[Key]:
    """One key a line, 64 hexadecimal digits; lines that begin with # are comments. Raises KeyFileError."""
    try:
        content = path.read_bytes()[:_MAX_BYTES].decode()
        if path.stat().st_mode & _OTHERS:
            _log.warning("others than this user may open the file of keys", path=str(path), cure=f"chmod 600 {path}")
    except (OSError, ValueError) as error:
        raise KeyFileError(f"{path}: it cannot be read: {error}") from None
    keys = []
    for number, line in enumerate(map(str.strip, content.splitlines()), 1):
        if line and not line.startswith("#"):
            if not _KEY.fullmatch(line):
                raise KeyFileError(f"{path}, line {number}: a key has 64 hexadecimal digits, as `{MAKE}` makes one")
            keys.append(Key(bytes.fromhex(line)))
    if not keys:
        raise KeyFileError(f"{path}: there is no key in it; `{MAKE}` makes one")
    return keys
