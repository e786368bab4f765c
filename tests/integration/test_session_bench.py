"""`kakeya bench session` on real workers: a sound one passes, and each gate finds the worker that it is there for."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration import faulty_verifiers
from tests.integration.processes import SINK, WINDOW, Runtime, runtime

TURNS, NEW_TOKENS, MAX_TOKENS = 130, 12, 2


@pytest.fixture(scope="module")
def stack(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """A router whose workers come with the tests."""
    directory = tmp_path_factory.mktemp("session-bench")
    faulty_verifiers.install(directory / "plugins")
    # By the path and not as plugins of forks, whose memory is partly that of the process they come from.
    environment = {"PYTHONPATH": str(directory / "plugins")}
    # A run takes a few seconds: what a worker says of its memory has to be of now.
    flags = ("--heartbeat-interval-seconds=0.1",)
    with runtime(model, directory, num_workers=0, router_flags=flags, environment=environment) as made:
        yield made


@pytest.fixture
def bench(stack: Runtime, model: Path, tmp_path: Path) -> Any:
    """Starts a worker with a backend and runs the bench on it; its exit status, and what it reports."""

    def run(backend: str, *flags: str) -> tuple[int, dict[str, Any]]:
        stack.start_worker("--backend", backend, "--served-model-name", backend, "--worker-id", backend)
        stack.wait_for_workers(len(stack.workers))
        command = [
            sys.executable, "-m", "kakeya", "bench", "session", "--address", stack.address, "--model", backend,
            "--turns", str(TURNS), "--random-tokens", str(NEW_TOKENS), "--max-tokens", str(MAX_TOKENS),
            "--config", str(model), "--output", str(tmp_path), *flags,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        print(done.stdout, done.stderr)
        return done.returncode, json.loads((tmp_path / "report.json").read_text())

    return run


def _outcomes(report: dict[str, Any]) -> dict[str, str]:
    return {name: gate["outcome"] for name, gate in report["gates"].items()}


@pytest.mark.timeout(300)
def test_a_sound_worker_passes(bench: Any) -> None:
    """Whether turns are as quick in the end is not asked here: that is for a machine with nothing else to do."""
    status, report = bench("torch", "--sessions", "2", "--exact", "--skip-gate", "prefill_bounded")
    assert _outcomes(report) == {
        "kv_bounded": "passed",
        "rss_bounded": "passed",
        "prefill_bounded": "skipped",
        "errors": "passed",
        "exact": "passed",
    }
    assert status == 0
    assert report["state"] == "complete"
    plateau = report["model"]["kv_live_bytes_at_plateau"]
    assert plateau == (SINK + WINDOW) * report["model"]["kv_bytes_per_token"] == report["agg"]["kv_live_bytes"]["max"]
    assert {turn["worker"] for turn in report["turns"]} == {"torch"}
    assert len(report["turns"]) == 2 * TURNS
    assert sum(turn["num_evicted_tokens"] for turn in report["turns"]) == report["agg"]["num_evicted_tokens"] > 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("backend", "gate", "flags"),
    [
        ("miscounting", "kv_bounded", ["--skip-gate", "prefill_bounded"]),  # as above
        pytest.param("leaking", "rss_bounded", ["--skip-gate", "prefill_bounded"], marks=pytest.mark.heavy),
        pytest.param("slowing", "prefill_bounded", [], marks=pytest.mark.heavy),
    ],
)
def test_a_faulty_worker_fails(bench: Any, backend: str, gate: str, flags: list[str]) -> None:
    status, report = bench(backend, *flags)
    assert _outcomes(report)[gate] == "failed", report["gates"][gate]
    assert status == 1
    assert [name for name, outcome in _outcomes(report).items() if outcome == "failed"] == [gate], report["gates"]
