"""Where a command cannot work it says so in one line, with its exit status, and shows no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kakeya.cli.main import main

LONG = "a" * 300
NO_TEXT = "no text \udcff"
NOWHERE = "~no-such-user/folder"


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")


def refusal(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    try:
        status = main(list(words))
    except SystemExit as ended:
        status = int(ended.code or 0)
    errors = capsys.readouterr().err
    assert status in (1, 2)
    assert "Traceback" not in errors
    (line,) = errors.splitlines()
    return line


@pytest.mark.parametrize("name", ["bytes", "/proc/kakeya", LONG, f"bytes/{NOWHERE}", "bytes/two\nlines"])
@pytest.mark.parametrize(
    "command", ["up --bind=127.0.0.1:0 --http-bind=none --data-dir", "bench session --address=127.0.0.1:1 --output"]
)
def test_a_place_that_cannot_be_written(command: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = command.split()
    line = refusal(*words, name, capsys=capsys)
    assert line.startswith(f"kakeya {' '.join(word for word in words[:2] if not word.startswith('-'))}: error: ")


@pytest.mark.parametrize("name", ["bytes", "folder", LONG, NO_TEXT, NOWHERE, "/nowhere/two\nlines"])
@pytest.mark.parametrize(
    "command", ["up --ephemeral --bind=127.0.0.1:0 --http-bind=none --model", "chat --address=127.0.0.1:1 --tokenizer"]
)
def test_a_model_that_is_none(command: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    refusal(*command.split(), name, capsys=capsys)


@pytest.mark.parametrize("name", ["bytes", "folder", LONG, "/nowhere"])
@pytest.mark.parametrize("flag", ["--tls-ca", "--api-key-file"])
@pytest.mark.parametrize("command", ["chat", "doctor", "keys list"])
def test_a_file_that_cannot_be_read(command: str, flag: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    refusal(*command.split(), flag, name, capsys=capsys)


@pytest.mark.parametrize("command", ["chat", "doctor", "keys list", "health"])
def test_an_address_that_is_no_text(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = command.split() if command == "health" else [*command.split(), "--address"]
    assert "is not HOST:PORT" in refusal(*words, NO_TEXT, capsys=capsys)


def test_a_host_that_is_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot listen on" in refusal("up", "--ephemeral", f"--bind={LONG}:0", "--insecure", capsys=capsys)


def in_shell(script: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs `kakeya` as "$@"."""
    command = ["sh", "-c", script, "sh", sys.executable, "-P", "-m", "kakeya"]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 1, done.stderr
    return done


@pytest.mark.parametrize("command", ["up --ephemeral", pytest.param("demo", marks=pytest.mark.heavy)])
def test_no_place_for_temporary_files(command: str) -> None:
    done = in_shell(f'ulimit -f 0; exec "$@" {command}', PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 1
    assert "there is no place for temporary files (TMPDIR): No usable temporary directory" in done.stderr


@pytest.mark.parametrize(
    ("output", "status", "says"),
    [("/dev/full", 1, "kakeya --version: error: No space left on device\n"), ("&-", 0, ""), ("/dev/null", 0, "")],
)
def test_an_output_that_takes_nothing(output: str, status: int, says: str) -> None:
    done = in_shell(f'exec "$@" --version >{output}')
    assert (done.returncode, done.stderr) == (status, says)


@pytest.mark.heavy
def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    done = in_shell(f'mkdir {tmp_path}/gone; cd {tmp_path}/gone; rmdir {tmp_path}/gone; exec "$@" up --data-dir data')
    assert done.returncode == 1
    assert "No such file or directory" in done.stderr
