"""Any snapshot store, with what is in it encrypted: files are read in parts, and what was changed is not read at all.

A file is a header and segments, by the construction of Tink's streaming AEAD AES-GCM-HKDF
(https://developers.google.com/tink/streaming-aead/aes_gcm_hkdf_streaming), with a header of our own:

    magic 16 | id of the key 8 | salt 32 | nonce prefix 7 | 0
    segment ... : up to 1 MiB of content, encrypted, and a tag of 16 bytes

Each file has a key of its own: HKDF-SHA256 of the key, with the salt, for the file's name. So no nonce comes twice, and
a file under another name, as one that was put in another session's place, is not read. A segment's nonce is the prefix,
its number, and whether it is the last: segments that were exchanged, left out or cut off are not read.
"""

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from kakeya_shared.errors.tree import SnapshotRefused
from kakeya_worker.snapshot_stores.key_file import Key
from kakeya_worker.snapshots.file_tensor import read, size
from kakeya_worker.snapshots.snapshot_store import ENCRYPTED, OpenFile, SnapshotStore, SnapshotStoreError, StoredFile

_HEADER = struct.Struct("16s8s32s7sx")
_NONCE = struct.Struct(">7sI?")
_SALT_BYTES, _PREFIX_BYTES, _TAG_BYTES = 32, 7, 16
_SEGMENT_BYTES = 1 << 20
_SEALED_BYTES = _SEGMENT_BYTES + _TAG_BYTES


class EncryptedStore:
    """A `SnapshotStore` over another one. What it opens raises SnapshotRefused, too: see `SealedFile`.

    Args:
        keys: the first encrypts.
    """

    def __init__(self, store: SnapshotStore, keys: Sequence[Key]) -> None:
        self._store = store
        self._key = keys[0]
        self._keys = {key.id: key for key in keys}
        self.identity = store.identity
        self.free_bytes = store.free_bytes

    def write(self, name: str, *pieces: bytes | memoryview) -> None:
        """Under a key of the file's own, which nobody has had before."""
        salt, prefix = os.urandom(_SALT_BYTES), os.urandom(_PREFIX_BYTES)
        secret = _file_secret(self._key, salt, name)
        header = _HEADER.pack(ENCRYPTED, self._key.id, salt, prefix)
        self._store.write(name, header, *_sealed(secret, prefix, pieces))

    def open(self, name: str) -> "SealedFile":
        """Raises SnapshotStoreError: it is not encrypted, or with a key that is not there. Others may read it."""
        file = self._store.open(name)
        try:
            return SealedFile(file, name, *self._opening(file, name))
        except BaseException:
            file.close()
            raise

    def _opening(self, file: OpenFile, name: str) -> tuple[bytes, bytes]:
        """The file's own key, and the prefix of its nonces."""
        magic = b""
        with suppress(ValueError):  # it is cut short
            magic, key_id, salt, prefix = _HEADER.unpack(read(file, 0, _HEADER.size))
        if magic != ENCRYPTED:
            raise SnapshotStoreError(f"{name}: it is not encrypted, and with --snapshot-key-file nothing else is read")
        if key_id not in self._keys:
            raise SnapshotStoreError(f"{name}: it is encrypted with key {key_id.hex()}, which is not in the key file")
        return _file_secret(self._keys[key_id], salt, name), prefix

    def delete(self, names: Iterable[str]) -> None:
        self._store.delete(names)

    def files(self, prefix: str) -> list[StoredFile]:
        return self._store.files(prefix)


class SealedFile:
    """An `OpenFile` of the content; what cannot be decrypted raises SnapshotRefused.

    It holds the segment that was read last.
    """

    def __init__(self, file: OpenFile, name: str, secret: bytes, prefix: bytes) -> None:
        self._file = file
        self._name = name
        self._cipher = AESGCM(secret)
        self._prefix = prefix
        self._sealed_bytes = size(file) - _HEADER.size
        self._num_segments = -(-self._sealed_bytes // _SEALED_BYTES)
        self._num_bytes = self._sealed_bytes - self._num_segments * _TAG_BYTES
        self._at = 0
        self._segment: tuple[int, bytes] = (-1, b"")

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._num_bytes}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, memory: memoryview, /) -> int:
        """Up to the end of a segment."""
        number, start = divmod(self._at, _SEGMENT_BYTES)
        if number >= max(1, self._num_segments):
            return 0
        part = memoryview(self._opened(number))[start : start + len(memory)]
        memory[: len(part)] = part
        self._at += len(part)
        return len(part)

    def close(self) -> None:
        self._file.close()

    def _opened(self, number: int) -> bytes:
        if self._segment[0] != number:
            start = number * _SEALED_BYTES
            nonce = _NONCE.pack(self._prefix, number, number == self._num_segments - 1)
            try:
                sealed = read(self._file, _HEADER.size + start, min(_SEALED_BYTES, self._sealed_bytes - start))
                self._segment = (number, self._cipher.decrypt(nonce, sealed, None))
            except (InvalidTag, ValueError) as error:
                message = f"{self._name}: it cannot be decrypted: it is damaged, or was written under another name"
                raise SnapshotRefused(message) from error
        return self._segment[1]


def _file_secret(key: Key, salt: bytes, name: str) -> bytes:
    return HKDF(SHA256(), 32, salt, b"kakeya snapshot " + name.encode()).derive(key.secret)


def _sealed(secret: bytes, prefix: bytes, pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Each segment in the parts that the pieces have in it, and its tag."""
    segments = [*_segments(pieces)]
    for number, parts in enumerate(segments):
        nonce = _NONCE.pack(prefix, number, number == len(segments) - 1)
        encryptor = Cipher(algorithms.AES(secret), modes.GCM(nonce)).encryptor()
        yield from map(encryptor.update, parts)
        encryptor.finalize()
        yield encryptor.tag


def _segments(pieces: Iterable[bytes | memoryview]) -> Iterator[list[memoryview]]:
    """The content, a segment at a time, without a copy of it; at least one, which may be empty."""
    parts: list[memoryview] = []
    room = _SEGMENT_BYTES
    for piece in pieces:
        rest = memoryview(piece).cast("B")
        while len(rest):
            if not room:
                yield parts
                parts, room = [], _SEGMENT_BYTES
            parts.append(rest[:room])
            rest = rest[room:]
            room -= len(parts[-1])
    yield parts
