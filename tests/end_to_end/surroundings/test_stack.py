"""A whole stack, and the commands beside it, in all surroundings at once that they are to work in.

Names that mean something in some syntax, a folder full of files that shadow modules, a proxy that leads nowhere, no
home, no locale, signals that are ignored. One start shows all of it; which of them is at fault when it fails the unit
tests say.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kakeya import Client
from kakeya_shared import installed_models
from tests.awkward_names import AWKWARD_NAMES
from tests.end_to_end.up_process import UpProcess
from tests.refusing_proxy import refusing_proxy

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]
LANES = ("--bind", "127.0.0.1:0", "--http-bind", "127.0.0.1:0", "--window", "64", "--lanes", "2", "--threads", "1")
SHADOWED = ("asyncio", "grpc", "json", "kakeya", "kakeya_local", "kakeya_shared", "redis", "signal", "torch")
IGNORED = (signal.SIGHUP, signal.SIGINT)
MODEL_NAME = 'a #;%s model\'s "name" [red] ü'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that is current, which says what of it was executed."""
    folder = tmp_path / "started #;% here"
    folder.mkdir()
    for module in SHADOWED:
        (folder / f"{module}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write(__name__ + ' ')\n")
    for name in ("HOME", "LANG", "LC_CTYPE", "LC_ALL"):
        monkeypatch.delenv(name, raising=False)
    with refusing_proxy(monkeypatch) as proxy:
        yield folder
    assert proxy.requests == []
    assert not (tmp_path / "executed").exists(), (tmp_path / "executed").read_text()


def run(place: Path, *words: str, says: str = "", status: int = 0) -> str:
    """What a command prints."""
    command = [sys.executable, "-P", "-m", "kakeya", *words]
    done = subprocess.run(command, cwd=place, input=says, capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def ignores(process: psutil.Process) -> bool:
    """Whether a process ignores all that is to be ignored."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    mask = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn:"))
    return all(mask >> (number - 1) & 1 for number in IGNORED)


def test_everything_works_in_all_of_them_at_once(place: Path, tmp_path: Path) -> None:
    model, data = tmp_path / MODEL_NAME, tmp_path / " ".join(AWKWARD_NAMES)
    shutil.copytree(installed_models.directory("kakeya-nano"), model)
    flags = ("--data-dir", str(data), "--model", str(model), *LANES)
    with UpProcess(*flags, cwd=place, ignored=IGNORED) as up:
        address = up.wait_ready()
        ours = [process for process in up.processes() if "python" in Path(process.exe()).name]  # Redis does as it likes
        if sys.platform == "linux":
            assert all(map(ignores, ours)), "its processes too"
        for number in IGNORED:
            for process in ours:
                process.send_signal(number)
        with Client(address) as client, client.create_session() as session:
            assert session.append(range(30)).history_length == 30
            assert session.model == MODEL_NAME
        (line,) = [line for line in up.output.splitlines() if line.startswith("curl ")]
        answer = json.loads(subprocess.check_output(["sh", "-c", line], timeout=60))
        assert answer["model"] == MODEL_NAME
        assert run(place, "chat", "--address", address, "--tokenizer", str(model), says="Hello!\n").strip()
        found = json.loads(run(place, "doctor", "--address", address, "--json"))
        assert "router" in {finding["subject"] for finding in found if finding["condition"] == "ok"}
        report = tmp_path / f"report {MODEL_NAME}"
        played = ("bench", "session", "--address", address, "--tokenizer", str(model), "--turns", "3")
        # Three turns are too few for most gates to judge.
        said = run(place, *played, "--output", str(report), status=2)
        assert "errors passed none in 3 turns" in " ".join(said.split())
        assert (report / "report.html").stat().st_size > 0
        status, errors = up.wait_end(signal.SIGTERM)
        assert (status, errors.splitlines()[-1]) == (0, "kakeya up: stopped")
        assert up.processes() == []
        assert up.left_files() == []
    assert {entry.name for entry in os.scandir(data)} >= {"redis", "logs", "snapshots"}
