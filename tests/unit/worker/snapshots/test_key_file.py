"""Keys of a snapshot store: read from a file, and told to nobody."""

from pathlib import Path

import pytest
import structlog

from kakeya_shared.process.service_process import StartError
from kakeya_worker.snapshot_stores.configured import configured_store
from kakeya_worker.snapshot_stores.encrypted import EncryptedStore
from kakeya_worker.snapshot_stores.key_file import KeyFileError, read_keys

ONE, TWO = "0f" * 32, "A1" * 32


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.touch(0o600)
    return path


def test_one_a_line(file: Path) -> None:
    file.write_text(f"# the new one\n{ONE}\n\n  {TWO}\r\n# gone: \n")
    with structlog.testing.capture_logs() as logs:
        keys = read_keys(file)
    assert [key.secret for key in keys] == [bytes.fromhex(ONE), bytes.fromhex(TWO)]
    assert len({key.id for key in keys}) == 2
    assert ONE not in repr(keys)
    assert keys[0].id.hex() in repr(keys)
    assert logs == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "there is no key in it"),
        (b"# only words\n", "there is no key in it"),
        (f"{ONE}\n{TWO}00\n".encode(), "line 2: a key has 64 hexadecimal digits"),
        (f"{ONE[:-1]}g".encode(), "line 1: a key has"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_what_is_no_key_is_said_without_it(file: Path, content: bytes, says: str) -> None:
    file.write_bytes(content)
    with pytest.raises(KeyFileError, match=says) as caught:
        read_keys(file)
    assert ONE[:20] not in str(caught.value)
    assert TWO[:20] not in str(caught.value)


def test_a_file_that_others_may_open_is_warned_of(file: Path) -> None:
    file.write_text(ONE)
    file.chmod(0o640)
    with structlog.testing.capture_logs() as logs:
        read_keys(file)
    assert [line["log_level"] for line in logs] == ["warning"]


def test_a_worker_has_the_store_that_it_is_started_with(file: Path, tmp_path: Path) -> None:
    file.write_text(ONE)
    assert configured_store("", None) is None
    assert isinstance(configured_store(str(tmp_path / "store"), file), EncryptedStore)
    assert not isinstance(configured_store(str(tmp_path / "store"), None), EncryptedStore)
    with pytest.raises(StartError, match="without --snapshots"):
        configured_store("", file)
    with pytest.raises(StartError, match=r"--snapshot-key-file: .*cannot be read"):
        configured_store(str(tmp_path / "store"), tmp_path / "none")


def test_what_encrypts_is_asked_for_by_name(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "kakeya_worker.snapshot_stores.encrypted", None)
    with pytest.raises(StartError, match=r"pip install 'kakeya-worker\[snapshots\]'"):
        configured_store(str(tmp_path / "store"), file)
