"""What launchd runs: the command with its variables, its log with a bound, its signals and its end."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kakeya_shared.installed_service import logged_run, service_command, variables
from kakeya_shared.installed_service.service import ServiceError
from tests.unit.shared.installed_service.toy import TOY

PATIENT_SECONDS = 60
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def start(tmp_path: Path, script: str, found: dict[str, str] | None = None, max_log_bytes: int = 1 << 20) -> int:
    (tmp_path / "toy.env").write_text(variables.document("toy", found or {}))
    return logged_run.run(["/bin/sh", "-c", script], tmp_path / "toy.env", tmp_path / "toy.log", max_log_bytes)


def log(tmp_path: Path) -> str:
    return (tmp_path / "toy.log").read_text(errors="surrogateescape")


def test_it_has_its_variables_and_a_home_and_its_output_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME")
    script = 'printf "%s\\n" "$TOY" ; echo "$HOME" >&2 ; printf \'latin \\351\\n\' ; printf unfinished'
    assert start(tmp_path, script, {"TOY": 'a "b" \\c $d'}) == 0
    assert log(tmp_path).splitlines()[0] == 'a "b" \\c $d'
    assert Path(log(tmp_path).splitlines()[1]).is_dir()
    assert log(tmp_path).splitlines()[2:] == ["latin \udce9", "unfinished"]


@pytest.mark.parametrize(("script", "status"), [("exit 1", 1), ("exit 3", 3), ("kill -9 $$", 137)])
def test_its_status_is_the_commands(tmp_path: Path, script: str, status: int) -> None:
    assert start(tmp_path, script) == status


@pytest.mark.parametrize("status", [2, 78])
def test_what_would_fail_again_is_not_started_again(tmp_path: Path, status: int) -> None:
    assert start(tmp_path, f"echo no token >&2 ; exit {status}") == 0
    assert log(tmp_path).startswith("no token\n/bin/sh -c")
    assert f"ended with status {status} and is not started again" in log(tmp_path)


def test_its_log_has_a_bound(tmp_path: Path) -> None:
    script = "i=0 ; while [ $i -lt 4000 ] ; do echo line $i ; i=$((i+1)) ; done"
    assert start(tmp_path, script, max_log_bytes=10_000) == 0
    logs = sorted(tmp_path.glob("toy.log*"))
    assert [each.name for each in logs] == ["toy.log", "toy.log.1", "toy.log.2", "toy.log.3"]
    assert max(each.stat().st_size for each in logs) <= 10_000
    assert log(tmp_path).splitlines()[-1] == "line 3999"


def test_what_the_command_leaves_behind_does_not_hold_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that it has started has the same output."""
    monkeypatch.setattr(logged_run, "_LAST_OUTPUT_SECONDS", 0.1)
    assert start(tmp_path, "sleep 600 & echo $! ; exit 4") == 4
    os.kill(int(log(tmp_path)), signal.SIGKILL)


@pytest.mark.parametrize("number", _SIGNALS)
def test_a_signal_is_handed_on(tmp_path: Path, number: signal.Signals) -> None:
    """By the command's own name it says so, and it ends as it likes."""

    def send() -> None:
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    sending = threading.Thread(target=send)
    sending.start()
    name = number.name.removeprefix("SIG")
    script = f"trap 'echo {name} ; exit 5' {name} ; touch '{tmp_path}/ready' ; while true ; do sleep 0.01 ; done"
    assert start(tmp_path, script) == 5
    sending.join()
    assert log(tmp_path) == f"{name}\n"


def test_a_signal_that_comes_before_the_command_is_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    popen = subprocess.Popen

    def started_late(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        os.kill(os.getpid(), signal.SIGTERM)
        return popen(*words, **options)

    monkeypatch.setattr(subprocess, "Popen", started_late)
    assert start(tmp_path, "exec sleep 600") == 128 + signal.SIGTERM


def test_the_verb_runs_the_command_as_it_is_installed(tmp_path: Path) -> None:
    """In a process of its own, by the words that stand in the plist."""
    (tmp_path / "toy.env").write_text(
        variables.document("toy", {"KAKEYA_WORKER_MODEL": "x", "KAKEYA_WORKER_LANES": "0"})
    )
    done = subprocess.run(
        [sys.executable, "-m", "kakeya", "worker", "run-service", str(tmp_path / "toy.env"), str(tmp_path / "toy.log")],
        capture_output=True,
        text=True,
        timeout=PATIENT_SECONDS,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "kakeya worker: error: --lanes (KAKEYA_WORKER_LANES)" in log(tmp_path)
    assert "worker ended with status 2 and is not started again" in log(tmp_path)


def test_files_that_cannot_be_used_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing, no_place = tmp_path / "missing.env", tmp_path / "nowhere/toy.log"
    assert service_command.run(TOY, ["run-service", str(missing), str(tmp_path / "toy.log")]) == 1
    assert f"{missing} cannot be read: No such file" in capsys.readouterr().err
    missing.touch()
    with pytest.raises(ServiceError, match=f"the log {no_place} cannot be written"):
        logged_run.run(["true"], missing, no_place)
