"""`kakeya bench load` on real workers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.processes import SINK, WINDOW, Runtime


@pytest.mark.timeout(120)
def test_two_levels(shared_runtime: Runtime, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "kakeya", "bench", "load", "--address", shared_runtime.address,
        "--sessions", "1,3", "--think-time-s", "0.2", "--warm-up-s", "0.5", "--duration-s", "4",
        "--ttft-limit-s", "60", "--tpot-limit-s", "60", "--judge-goodput",
        "--random-tokens", "40", "--max-tokens", "5", "--output", str(tmp_path),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "load.json").read_text())
    assert {name: gate["outcome"] for name, gate in found["gates"].items()} == {"errors": "passed", "goodput": "passed"}
    full = (SINK + WINDOW) * found["model"]["worker"]["kv_bytes_per_token"]
    for level, num_sessions in zip(found["levels"], (1, 3), strict=True):
        turns = level["turns"]
        assert {turn["session"] for turn in turns} == set(range(num_sessions))
        assert max(turn["kv_live_bytes"] for turn in turns) == full
        assert all(turn["num_tokens_out"] == 5 and turn["time_to_first_token_seconds"] > 0 for turn in turns)
    assert all(worker.num_sessions == 0 for worker in shared_runtime.list_workers() if worker.model == "demo")
