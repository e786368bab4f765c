"""The data directory: one stack at a time, logs begun anew, short socket paths, nothing temporary left."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kakeya_local.errors import StackError
from kakeya_local.stack.data_directory import default_path, open_directory


def test_locked_while_open(tmp_path: Path) -> None:
    with open_directory(tmp_path, ephemeral=False):
        second = open_directory(tmp_path, ephemeral=False)
        with pytest.raises(StackError, match=rf"another `kakeya up` \(pid {os.getpid()}\) runs in {tmp_path}"), second:
            pass
    with open_directory(tmp_path, ephemeral=False):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_a_child_that_inherits_the_lock_prolongs_it(tmp_path: Path) -> None:
    with open_directory(tmp_path, ephemeral=False) as directory:
        waiting = [sys.executable, "-c", "input()"]
        child = subprocess.Popen(waiting, stdin=subprocess.PIPE, pass_fds=(directory.lock_fd,))
    with pytest.raises(StackError, match="another `kakeya up`"), open_directory(tmp_path, ephemeral=False):
        pass
    child.communicate(b"\n")
    with open_directory(tmp_path, ephemeral=False):
        pass


def test_the_log_of_a_run_holds_nothing_of_the_one_before(tmp_path: Path) -> None:
    for run in ("first", "second", "third"):
        with open_directory(tmp_path, ephemeral=False) as directory:
            assert not directory.log("router").exists()
            directory.log("router").write_text(run)
    assert (tmp_path / "logs" / "router.log.previous").read_text() == "second"


def test_the_ephemeral_one_is_private_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as short:  # than which pytest's may be too long for sockets
        monkeypatch.setattr("tempfile.tempdir", short)
        with open_directory(None, ephemeral=True) as directory:
            assert directory.path.is_relative_to(short)
            assert directory.redis.is_dir()
            assert directory.runtime.stat().st_mode & 0o077 == 0
        assert os.listdir(short) == []
        monkeypatch.undo()


def test_sockets_have_short_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with open_directory(tmp_path / "data", ephemeral=False) as directory:
        assert len(str(directory.runtime / "supervisor.sock")) < 104
        runtime = directory.runtime
    assert not runtime.exists()
    assert list(deep.iterdir()) == []


def test_a_place_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    impossible = tmp_path / "file" / "data"
    refusal = pytest.raises(StackError, match=f"cannot use the data directory {impossible}: Not a directory")
    with refusal, open_directory(impossible, ephemeral=False):
        pass


def test_default_is_the_state_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/states")
    assert default_path() == Path("/states/kakeya")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert default_path() == Path.home() / ".local/state/kakeya"
