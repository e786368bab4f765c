"""Sessions that share steps, on an engine that measured what steps cost."""

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from kakeya_worker.engine.costs import step_fitting
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.engine.steps import running_operations
from kakeya_worker.torch_backend import TorchVerifier
from tests.unit.worker.engine_calls import SINK, TIMEOUT, WINDOW, open_session, start_append, start_generate

GEOMETRY = LaneGeometry(SINK, WINDOW, chunk=32)
LONG = 200  # tokens
STEP_SECONDS, TOKEN_SECONDS = 0.004, 0.004


@pytest.fixture
def steps(verifier: TorchVerifier, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Tokens of each row, step by step, of a model that is slow by the clock that steps are measured with."""
    steps: list[list[int]] = []
    forward, now = verifier.forward, 0.0

    def slowly(rows: Sequence[Row]) -> None:
        nonlocal now
        steps.append([len(row.token_ids) for row in rows])
        forward(rows)
        now += STEP_SECONDS + TOKEN_SECONDS * sum(steps[-1])

    monkeypatch.setattr(verifier, "forward", slowly)
    for module in (step_fitting, running_operations):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now))
    return steps


def _tokens_beside_a_prefill(engine: Engine) -> tuple[list[int], list[int]]:
    """Of a session, and of the one whose prefill runs beside it."""
    engine.start()
    try:
        for session_id in "ab":
            open_session(engine, session_id)
        start_append(engine, 0, 5, "a").future.result(TIMEOUT)
        first, tokens = start_generate(engine, 5, 10**6, session_id="a", wanted=60)
        start_append(engine, 0, LONG, "b").future.result(TIMEOUT)
        second, others = start_generate(engine, LONG, 20, session_id="b", wanted=20)
        second.future.result(TIMEOUT)
        assert tokens.enough.wait(TIMEOUT)
        engine.cancel(first)
    finally:
        engine.shut_down()
    assert not engine.crashed.done()
    return tokens.ids[:60], others.ids


def test_prefills_are_cut_short_beside_who_generates(verifier: TorchVerifier, steps: list[list[int]]) -> None:
    engine = Engine(verifier, GEOMETRY, num_lanes=2, step_tokens=64)
    engine.fit_step_costs()
    steps.clear()
    _tokens_beside_a_prefill(engine)
    # A token that is generated takes 8 ms, one that is prefilled 4: two of these.
    assert max(step[1] for step in steps if len(step) == 2) < GEOMETRY.chunk // 2


def test_without_measures_prefills_take_whole_chunks(verifier: TorchVerifier, steps: list[list[int]]) -> None:
    _tokens_beside_a_prefill(Engine(verifier, GEOMETRY, num_lanes=2, step_tokens=64))
    assert max(step[1] for step in steps if len(step) == 2) == GEOMETRY.chunk


def test_measuring_changes_no_token(verifier: TorchVerifier) -> None:
    measured, plain = (Engine(verifier, GEOMETRY, num_lanes=2, step_tokens=64) for _ in range(2))
    measured.fit_step_costs()
    found = _tokens_beside_a_prefill(measured)
    verifier.allocate(GEOMETRY, 2)
    assert found == _tokens_beside_a_prefill(plain)
    assert len(set(found[0])) > 5


def test_one_line_tells_what_steps_cost(verifier: TorchVerifier, steps: list[list[int]]) -> None:
    engine = Engine(verifier, GEOMETRY, num_lanes=2, step_tokens=64)
    with capture_logs() as logs:
        engine.fit_step_costs()
    (line,) = [line for line in logs if line["event"] == "step costs"]
    assert line["milliseconds_per_step"] == pytest.approx(1e3 * STEP_SECONDS, rel=0.01)
    assert line["milliseconds_per_token"] == pytest.approx(1e3 * TOKEN_SECONDS, rel=0.01)


@pytest.mark.parametrize("method", ["copy_lane", "forward"])
def test_a_model_that_cannot_be_measured_serves(
    verifier: TorchVerifier, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no memory")

    engine = Engine(verifier, GEOMETRY, num_lanes=2, step_tokens=64)
    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(verifier, method, fail)
        engine.fit_step_costs()
    assert [(line["log_level"], line["exc_info"]) for line in logs] == [("warning", True)]
    assert len(_tokens_beside_a_prefill(engine)[0]) == 60


def test_a_single_lane_needs_no_measures(verifier: TorchVerifier, steps: list[list[int]]) -> None:
    Engine(verifier, GEOMETRY, num_lanes=1, step_tokens=64).fit_step_costs()
    assert steps == []
