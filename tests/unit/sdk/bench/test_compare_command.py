"""`kakeya bench compare` as it is called: files, exit status, what it says where it cannot run."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kakeya.bench import extra
from kakeya.bench.compare import command
from kakeya.errors import MissingExtra
from tests.unit.sdk.bench.comparing import SHORT
from tests.unit.sdk.bench.scripted_rival import Exchange, ScriptedRival, scripted_rival
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

COMMAND = "import sys; from kakeya.bench.compare.command import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def rival() -> Iterator[ScriptedRival]:
    with scripted_rival() as rival:
        yield rival


def document(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "compare.json").read_text())
    return found


def test_files_and_summary(
    runtime: ScriptedRuntime, rival: ScriptedRival, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key"
    key.write_text("sk-secret")
    flags = ["--address", runtime.address, *SHORT, "--turns", "3", f"--rival=a={rival.url},key-file={key}"]
    output = tmp_path / "deep" / "report"
    assert command.main([*flags, "--at-least=a=0.0001", f"--output={output}"]) == 0
    assert {file.name for file in output.iterdir()} == {"compare.html", "compare.json", "compare.png"}
    assert document(output)["schema"] == "kakeya.bench.compare/1"
    assert document(output)["state"] == "complete"
    assert capsys.readouterr().out.endswith(f"report: {output}\n")
    assert all(b"sk-secret" not in file.read_bytes() for file in output.iterdir())
    assert command.main([*flags, "--at-least=a=100000", f"--output={output}"]) == 1


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--address", "127.0.0.1:1"], "no runtime answers at 127.0.0.1:1"),
        (["--api-key-file", "/no/such"], "--api-key-file /no/such: No such file or directory"),
        (["--config", "/no/such"], "/no/such: No such file or directory"),
        (["--model", "another"], "no worker serves the model 'another' (served: counter)"),
        (["--output", "/dev/null/report"], "/dev/null/report: Not a directory"),
    ],
)
def test_why_it_cannot_run(
    runtime: ScriptedRuntime, flags: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = ["--address", runtime.address, "--output", str(tmp_path / "report"), *SHORT, "--turns", "1"]
    assert command.main([*usual, *flags]) == 2
    said = capsys.readouterr().err
    assert said.startswith("kakeya bench compare: error: ")
    assert says in said


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuses(feature: str) -> None:
        raise MissingExtra(feature, "bench")

    monkeypatch.setattr(extra, "require", refuses)
    assert command.main([]) == 2
    assert "kakeya bench compare needs an extra" in capsys.readouterr().err


def start(runtime: ScriptedRuntime, rival: ScriptedRival, output: Path) -> "subprocess.Popen[bytes]":
    flags = ["--address", runtime.address, "--output", str(output), *SHORT, "--checkpoint-s", "0"]
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *flags, f"--rival=a={rival.url}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def test_ctrl_c(runtime: ScriptedRuntime, rival: ScriptedRival, tmp_path: Path) -> None:
    with start(runtime, rival, tmp_path) as process:
        runtime.wait_for(lambda: len(rival.bodies) >= 5)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, b"")
    assert document(tmp_path)["state"] == "interrupted"
    assert len(document(tmp_path)["turns"]) >= 9
    assert (tmp_path / "compare.html").exists()
    assert runtime.sessions.keys() == set()


def test_kill_9(runtime: ScriptedRuntime, rival: ScriptedRival, tmp_path: Path) -> None:
    def holds(exchange: Exchange) -> None:
        time.sleep(0.05)
        exchange.connection.recv(1)

    rival.on_request = lambda: rival.answering.append(holds) if len(rival.bodies) == 5 else None
    with start(runtime, rival, tmp_path) as process:
        runtime.wait_for(lambda: len(rival.bodies) >= 5)
        process.kill()
        process.communicate(timeout=30)
    found = document(tmp_path)
    assert (found["state"], found["schema"]) == ("running", "kakeya.bench.compare/1")
    assert [turn["index"] for turn in found["turns"] if turn["player"] == "a"] == [1, 2, 3, 4]


def test_help_needs_nothing_of_the_extra(capsys: pytest.CaptureFixture[str]) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['matplotlib', 'psutil', 'rich']))\n"
        "from kakeya.bench.compare.command import main; main(['--help'])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "--rival NAME=URL" in said
    assert "docs/benches.md" in said
