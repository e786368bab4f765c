"""Steps are measured on a real model, before there are sessions."""

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kakeya_worker.engine.costs import step_fitting
from kakeya_worker.engine.costs.step_costs import MeasuredStep, StepCosts, fit
from kakeya_worker.engine.costs.step_fitting import NUM_NEEDED, measure_steps
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.torch_backend import TorchVerifier

COSTS = StepCosts(step_seconds=0.02, token_seconds=0.002, slot_seconds=0.000_02)


@pytest.fixture
def slow(verifier: TorchVerifier, monkeypatch: pytest.MonkeyPatch) -> TorchVerifier:
    """A model that takes as long as the costs say, by the clock that steps are measured with."""
    forward, now = verifier.forward, 0.0

    def slowly(rows: Sequence[Row]) -> None:
        nonlocal now
        forward(rows)
        num_tokens = sum(len(row.token_ids) for row in rows)
        now += COSTS.seconds(num_tokens, sum(int(row.visible.sum()) for row in rows))

    monkeypatch.setattr(verifier, "forward", slowly)
    monkeypatch.setattr(step_fitting, "time", SimpleNamespace(perf_counter=lambda: now))
    return verifier


def _measured(verifier: TorchVerifier, geometry: LaneGeometry, num_lanes: int = 2) -> list[MeasuredStep]:
    verifier.allocate(geometry, num_lanes)
    return measure_steps(verifier, geometry, sink_window(SessionOptions(), geometry), num_lanes)


@pytest.mark.parametrize("num_lanes", [2, 1])
def test_costs_are_those_of_the_steps(slow: TorchVerifier, monkeypatch: pytest.MonkeyPatch, num_lanes: int) -> None:
    monkeypatch.setattr(step_fitting, "FITTING_SECONDS", math.inf)
    monkeypatch.setattr(step_fitting, "NUM_ROUNDS", 2)
    costs = fit(_measured(slow, LaneGeometry(4, 508, 32), num_lanes))
    for size in ((1, 1), (1, 500), (9, 4000), (17, 8000)):
        assert costs.seconds(*size) == pytest.approx(COSTS.seconds(*size), rel=0.01)


def test_a_slow_model_runs_the_steps_that_are_needed_once(slow: TorchVerifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_fitting, "FITTING_SECONDS", 0.0)
    measured = _measured(slow, LaneGeometry(4, 508, 32))
    assert len(measured) == NUM_NEEDED
    costs = fit(measured)
    assert costs.seconds(9, 4000) == pytest.approx(COSTS.seconds(9, 4000), rel=0.01)


@pytest.mark.parametrize("geometry", [LaneGeometry(0, 1, 1), LaneGeometry(4, 64, 7), LaneGeometry(1, 500, 100)])
def test_any_lane_can_be_measured(verifier: TorchVerifier, geometry: LaneGeometry) -> None:
    measured = _measured(verifier, geometry)
    assert all(0.0 < step.seconds < math.inf for step in measured)
    assert fit(measured).seconds(1, 1) > 0.0


@pytest.mark.parametrize(("num_lanes", "used"), [(3, {0, 2}), (2, {0, 1}), (1, {0})])
def test_sessions_find_the_first_lanes_in_large_pages(
    verifier: TorchVerifier, monkeypatch: pytest.MonkeyPatch, num_lanes: int, used: set[int]
) -> None:
    """What is written before its memory is made lies in small pages: of all lanes but the first, only the last one."""
    called: list[str] = []
    lanes: set[int] = set()

    def noted(name: str, whole: Callable[..., None]) -> Callable[..., None]:
        def call(*given: Any) -> None:
            called.append(name)
            if name == "forward":
                lanes.update(row.lane for row in given[0])
            whole(*given)

        return call

    for name in ("populate_lane", "copy_lane", "forward"):
        monkeypatch.setattr(verifier, name, noted(name, getattr(verifier, name)))
    _measured(verifier, LaneGeometry(4, 64, 7), num_lanes)
    assert called[0] == "populate_lane"
    assert lanes == used


_GROWTH = """
import sys
import psutil
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, sink_window
from kakeya_worker.engine.costs.step_fitting import measure_steps
from kakeya_worker.torch_backend import TorchVerifier

verifier = TorchVerifier(sys.argv[1], weights="int8", kv_dtype="auto", num_threads=1, cache_directory=None)
geometry = LaneGeometry(4, 16_380, 32)
before = psutil.Process().memory_info().rss
verifier.allocate(geometry, 20)
measure_steps(verifier, geometry, sink_window(SessionOptions(), geometry), 20)
print(psutil.Process().memory_info().rss - before, geometry.num_slots * verifier.facts.kv_bytes_per_token)
"""


def test_only_one_lane_takes_memory(random_checkpoint: Path) -> None:
    """In a process of its own: what others have freed and kept would be counted."""
    command = [sys.executable, "-c", _GROWTH, str(random_checkpoint)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    grown, lane_bytes = map(int, output.splitlines()[-1].split())
    assert grown < 2 * lane_bytes
