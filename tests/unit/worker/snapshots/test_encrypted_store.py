"""An encrypted store gives back what was written, and nothing that was changed, moved or cut."""

import os
import secrets
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from kakeya_shared.errors.tree import SnapshotRefused
from kakeya_worker.snapshot_stores.encrypted import EncryptedStore
from kakeya_worker.snapshot_stores.file import FileSnapshotStore
from kakeya_worker.snapshot_stores.key_file import Key
from kakeya_worker.snapshots import snapshot_file
from kakeya_worker.snapshots.snapshot_store import SnapshotStoreError

NAME, OTHER = "pool/pool.session-1-0-40.safetensors", "pool/pool.another-1-0-40.safetensors"
SEGMENT = 1 << 20
HEADER, TAG = 64, 16
KEY, NEW_KEY = Key(bytes(range(32))), Key(bytes(range(1, 33)))


@pytest.fixture
def plain(tmp_path: Path) -> FileSnapshotStore:
    return FileSnapshotStore(str(tmp_path))


@pytest.fixture
def store(plain: FileSnapshotStore) -> EncryptedStore:
    return EncryptedStore(plain, [KEY])


def read(store: EncryptedStore, name: str = NAME) -> bytes:
    with closing(store.open(name)) as file:
        content = bytearray(file.seek(0, os.SEEK_END))
        file.seek(0)
        at = 0
        while more := file.readinto(memoryview(content)[at:]):
            at += more
        assert at == len(content)
        return bytes(content)


@pytest.mark.parametrize("num_bytes", [0, 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT, 3 * SEGMENT + 7])
def test_a_file_comes_back_whole(store: EncryptedStore, tmp_path: Path, num_bytes: int) -> None:
    content = secrets.token_bytes(num_bytes)
    store.write(NAME, content[:5], memoryview(content)[5:9], b"", content[9:])
    assert read(store) == content
    assert (tmp_path / NAME).stat().st_size == HEADER + num_bytes + TAG * max(1, -(-num_bytes // SEGMENT))


def test_any_part_is_read_by_itself(store: EncryptedStore) -> None:
    content = secrets.token_bytes(2 * SEGMENT + 100)
    store.write(NAME, content)
    with closing(store.open(NAME)) as file:
        for start, num_bytes in ((2 * SEGMENT + 10, 20), (0, 8), (SEGMENT - 3, 3), (SEGMENT, 7), (5, 1)):
            part = bytearray(num_bytes)
            assert file.seek(start) == start
            assert file.readinto(memoryview(part)) == num_bytes
            assert part == content[start : start + num_bytes]
        assert file.seek(-1, os.SEEK_CUR) == 5
        assert file.seek(-4, os.SEEK_END) == len(content) - 4
        assert file.readinto(memoryview(bytearray(9))) == 4
        assert file.readinto(memoryview(bytearray(9))) == 0
        assert file.seek(9 * SEGMENT) == 9 * SEGMENT
        assert file.readinto(memoryview(bytearray(9))) == 0


def test_the_format_is_what_it_says(store: EncryptedStore, tmp_path: Path) -> None:
    """Taken apart by hand, so that files can be read in years."""
    content = secrets.token_bytes(SEGMENT + 5)
    store.write(NAME, content)
    sealed = (tmp_path / NAME).read_bytes()
    assert sealed[:16] == b"kakeya-sealed-1\n"
    assert sealed[16:24] == KEY.id
    assert sealed[63] == 0
    salt, prefix = sealed[24:56], sealed[56:63]
    cipher = AESGCM(HKDF(SHA256(), 32, salt, b"kakeya snapshot " + NAME.encode()).derive(KEY.secret))
    first, last = sealed[64 : 64 + SEGMENT + 16], sealed[64 + SEGMENT + 16 :]
    assert cipher.decrypt(prefix + bytes(4) + b"\0", first, None) == content[:SEGMENT]
    assert cipher.decrypt(prefix + b"\0\0\0\1\1", last, None) == content[SEGMENT:]


def test_the_same_content_is_never_the_same_file(store: EncryptedStore, tmp_path: Path) -> None:
    written = []
    for _ in range(2):
        store.write(NAME, bytes(1000))
        written.append((tmp_path / NAME).read_bytes())
    one, other = (each[24:] for each in written)
    assert not any(one[at : at + 16] == other[at : at + 16] for at in range(len(one) - 16))
    assert bytes(8) not in one


@pytest.mark.parametrize(
    "changed",
    [
        *(
            pytest.param(lambda sealed, at=at: sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :], id=f"bit {at}")
            for at in (24, 55, 56, 62, 64, 64 + SEGMENT, 64 + SEGMENT + 15, 64 + SEGMENT + 16, -1 + 64 + 2 * SEGMENT)
        ),
        pytest.param(lambda sealed: sealed[:-1], id="a byte less"),
        pytest.param(lambda sealed: sealed[: HEADER + SEGMENT + TAG], id="without the last segment"),
        pytest.param(lambda sealed: sealed[:HEADER], id="without any segment"),
        pytest.param(lambda sealed: sealed[: HEADER + 7], id="less than a tag"),
        pytest.param(lambda sealed: sealed + b"\0", id="a byte more"),
        pytest.param(lambda sealed: sealed + sealed[-TAG:], id="a tag more"),
        pytest.param(
            lambda sealed: (
                sealed[:HEADER] + sealed[HEADER + SEGMENT + TAG : HEADER + 2 * (SEGMENT + TAG)]
                + sealed[HEADER : HEADER + SEGMENT + TAG] + sealed[HEADER + 2 * (SEGMENT + TAG) :]
            ),
            id="segments exchanged",
        ),
    ],
)  # fmt: skip
def test_what_was_changed_is_refused(store: EncryptedStore, tmp_path: Path, changed: Callable[[bytes], bytes]) -> None:
    store.write(NAME, secrets.token_bytes(2 * SEGMENT + 100))
    file = tmp_path / NAME
    file.write_bytes(changed(file.read_bytes()))
    with pytest.raises(SnapshotRefused, match=rf"^{NAME}: it cannot be decrypted"):
        read(store)


def test_a_file_in_another_sessions_place_is_refused(store: EncryptedStore, tmp_path: Path) -> None:
    store.write(NAME, b"what one session has said")
    (tmp_path / NAME).rename(tmp_path / OTHER)
    with pytest.raises(SnapshotRefused, match=rf"^{OTHER}: it cannot be decrypted"):
        read(store, OTHER)


@pytest.mark.parametrize("content", [b"", b"plain", bytes(100)])
def test_what_is_not_encrypted_is_refused(store: EncryptedStore, plain: FileSnapshotStore, content: bytes) -> None:
    plain.write(NAME, content)
    with pytest.raises(SnapshotStoreError, match=rf"^{NAME}: it is not encrypted"):
        store.open(NAME)


def test_who_has_no_keys_is_told_what_it_is(store: EncryptedStore, plain: FileSnapshotStore) -> None:
    store.write(NAME, b"content")
    with closing(plain.open(NAME)) as file, pytest.raises(SnapshotStoreError, match="no --snapshot-key-file"):
        snapshot_file.opened(file, NAME)


def test_a_key_is_replaced_by_another(plain: FileSnapshotStore) -> None:
    EncryptedStore(plain, [KEY]).write(NAME, b"old")
    both = EncryptedStore(plain, [NEW_KEY, KEY])
    both.write(OTHER, b"new")
    assert (read(both), read(both, OTHER)) == (b"old", b"new")
    only_new = EncryptedStore(plain, [NEW_KEY])
    assert read(only_new, OTHER) == b"new"
    with pytest.raises(SnapshotStoreError, match=f"with key {KEY.id.hex()}, which is not in the key file"):
        only_new.open(NAME)


def test_the_rest_is_as_in_the_store_below(store: EncryptedStore, plain: FileSnapshotStore) -> None:
    assert (store.identity, store.free_bytes) == (plain.identity, plain.free_bytes)
    store.write(NAME, b"content")
    assert [file.name for file in store.files("pool/")] == [NAME]
    store.delete([NAME])
    assert store.files("pool/") == []
