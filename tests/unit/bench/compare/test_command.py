"""`kakeya bench compare` as it is called: files, exit status, what it says where it cannot run."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kakeya_bench.compare import command
from tests.unit.bench.compare.scripted_rival import Exchange, ScriptedRival
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

COMMAND = "import sys; from kakeya_bench.compare.command import main; sys.exit(main(sys.argv[1:]))"


def document(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "report" / "compare.json").read_text())
    return found


def test_files_summary_and_claims(
    flags: list[str], rival: ScriptedRival, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key"
    key.write_text("sk-secret")
    flags += ["--turns", "3", f"--rival=a={rival.url},key-file={key}"]
    assert command.main([*flags, "--at-least=a=0.0001"]) == 0
    files = list((tmp_path / "report").iterdir())
    assert {file.name for file in files} == {"compare.html", "compare.json", "compare.png"}
    assert (document(tmp_path)["schema"], document(tmp_path)["state"]) == ("kakeya.bench.compare/1", "complete")
    said = capsys.readouterr().out
    assert "kakeya bench compare: counter" in said
    assert said.endswith(f"report: {tmp_path / 'report'}\n")
    assert all(b"sk-secret" not in file.read_bytes() for file in files)
    assert command.main([*flags, "--at-least=a=100000", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["claims"]["a"]["outcome"] == "failed"


def test_a_config_that_is_not_there(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([*flags, "--turns", "1", "--config", "/no/such"]) == 2
    assert capsys.readouterr().err == "kakeya bench compare: error: /no/such: No such file or directory\n"


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("number", "status", "state"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGKILL, -signal.SIGKILL, "running")],
)
def test_what_outlives_a_signal_in_a_rivals_turn(
    flags: list[str],
    runtime: ScriptedRuntime,
    rival: ScriptedRival,
    tmp_path: Path,
    number: signal.Signals,
    status: int,
    state: str,
) -> None:
    rival.on_request = lambda: rival.answering.append(Exchange.stall) if len(rival.bodies) == 5 else None
    argv = [sys.executable, "-c", COMMAND, *flags, "--checkpoint-s", "0", f"--rival=a={rival.url}"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        while len(rival.bodies) < 5 and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(number)
        _, said = process.communicate()
    assert (process.returncode, said) == (status, b"")
    assert (document(tmp_path)["state"], len(document(tmp_path)["turns"])) == (state, 9)
    is_told = number == signal.SIGINT
    assert (tmp_path / "report" / "compare.html").exists() == is_told
    assert (not runtime.sessions) == is_told, "who is told to end closes its session"


def test_help_waits_for_nothing_that_plays_or_draws() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['matplotlib', 'psutil', 'rich', 'httpx', 'scipy']))\n"
        "from kakeya_bench.compare.command import main; main(['--help'])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "--rival NAME=URL" in said
