"""Log-probabilities of appended tokens: the same as when they are generated, however they are appended."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kakeya_shared.errors.tree import Internal, OperationStopped
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.operation import Append
from kakeya_worker.engine.sampling.sampling import TokenDetail
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.steps.scoring import ScoringCosts
from kakeya_worker.torch_backend import TorchVerifier
from tests.unit.worker.engine_calls import (
    NUM_LANES,
    SINK,
    TIMEOUT,
    WINDOW,
    error_of,
    live_state,
    open_session,
    start_generate,
)

PROMPT = tuple(range(100, 130))
NUM_GENERATED = 60  # beyond sinks and window; 64 that nobody reads would pause it


@pytest.fixture
def exact(random_checkpoint: Path) -> Iterator[Engine]:
    verifier = TorchVerifier(
        str(random_checkpoint), weights="int8", kv_dtype="auto", num_threads=1, cache_directory=None
    )
    engine = Engine(verifier, LaneGeometry(SINK, WINDOW, chunk=32), NUM_LANES, step_tokens=64)
    engine.start()
    yield engine
    engine.shut_down()
    assert not engine.crashed.done()


def _append(
    engine: Engine, at: int, token_ids: tuple[int, ...], num_top: int | None = None, session_id: str = "s"
) -> tuple[TokenDetail, ...]:
    append = Append(session_id, 1, at, token_ids, num_top)
    engine.submit(append)
    result = append.future.result(TIMEOUT)
    assert result.lane.history_length == at + len(token_ids)
    return result.details


def _generated(engine: Engine, **asked: Any) -> tuple[tuple[int, ...], list[TokenDetail | None]]:
    open_session(engine, "generating")
    _append(engine, 0, PROMPT, session_id="generating")
    generate, tokens = start_generate(engine, len(PROMPT), NUM_GENERATED, session_id="generating", **asked)
    generate.future.result(TIMEOUT)
    return tuple(tokens.ids), tokens.details


@pytest.mark.parametrize("sizes", [(60,), (1,) * 60, (32, 20, 8), (7, 53)], ids=lambda sizes: f"{len(sizes)}-appends")
def test_they_are_those_of_the_same_tokens_generated(exact: Engine, sizes: tuple[int, ...]) -> None:
    """To the bit, in exact mode."""
    token_ids, expected = _generated(exact, num_top_logprobs=5, seed=3, temperature=1.5)
    open_session(exact)
    _append(exact, 0, PROMPT)
    found: list[TokenDetail] = []
    for size in sizes:
        at = len(found)
        found += _append(exact, len(PROMPT) + at, token_ids[at : at + size], 5)
    assert found == expected


def test_they_do_not_depend_on_who_is_in_the_batch(exact: Engine) -> None:
    token_ids, expected = _generated(exact, num_top_logprobs=0)
    for session_id in ("s", "t"):
        open_session(exact, session_id)
    company, _ = start_generate_beside(exact)
    _append(exact, 0, PROMPT)
    assert list(_append(exact, len(PROMPT), token_ids, 0)) == expected
    exact.cancel(company)
    assert isinstance(error_of(company.future), OperationStopped)


def start_generate_beside(engine: Engine) -> Any:
    _append(engine, 0, (7, 8, 9), session_id="t")
    return start_generate(engine, 3, 10**6, session_id="t", wanted=1)


def test_nothing_precedes_the_first_token_of_a_history(engine: Engine) -> None:
    open_session(engine)
    details = _append(engine, 0, PROMPT, 3)
    assert len(details) == len(PROMPT) - 1
    assert all(len(detail.top) == 3 and detail.logprob <= detail.top[0][1] < 0 for detail in details)
    assert sum(math.exp(logprob) for _, logprob in details[0].top) < 1
    assert _append(engine, len(PROMPT), (), 3) == ()
    assert len(_append(engine, len(PROMPT), (5,), 3)) == 1
    open_session(engine, "one")
    assert _append(engine, 0, (5,), 3, "one") == ()


def test_none_come_where_none_are_asked_for(engine: Engine) -> None:
    open_session(engine)
    assert _append(engine, 0, PROMPT) == ()


def test_after_a_rewind_the_first_is_judged_by_what_is_left(engine: Engine) -> None:
    for session_id in ("s", "t"):
        open_session(engine, session_id)
        _append(engine, 0, PROMPT, session_id=session_id)
    _append(engine, len(PROMPT), (1, 2, 3))
    engine.rewind("s", 1, len(PROMPT) + 3, len(PROMPT)).result(TIMEOUT)
    (found,) = _append(engine, len(PROMPT), (9,), 0)
    (expected,) = _append(engine, len(PROMPT), (9,), 0, "t")
    assert found.logprob == pytest.approx(expected.logprob, rel=1e-5)


@pytest.mark.parametrize("method", ["logits", "scored_logits"])
def test_logits_that_are_no_numbers_fail_the_append_alone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Its tokens are in the lane, as those of an append that asks for nothing would be."""
    open_session(engine)
    _append(engine, 0, PROMPT)
    with monkeypatch.context() as patch:
        nothing = np.full((3, 1024), np.nan, np.float32)
        patch.setattr(engine._verifier, method, lambda _: nothing[:1] if method == "logits" else nothing)
        append = Append("s", 1, len(PROMPT), (1, 2, 3), 0)
        engine.submit(append)
        assert isinstance(error_of(append.future), Internal)
    assert live_state(engine).history_length == len(PROMPT) + 3
    assert len(_append(engine, len(PROMPT) + 3, (4, 5), 0)) == 2


def test_logits_that_cannot_be_had_fail_the_append_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row is computed by then: what comes next goes on behind it."""

    def broken(lanes: object) -> None:
        raise RuntimeError

    for session_id in ("s", "t"):
        open_session(engine, session_id)
        _append(engine, 0, PROMPT, session_id=session_id)
    with monkeypatch.context() as patch:
        patch.setattr(engine._verifier, "scored_logits", broken)
        append = Append("s", 1, len(PROMPT), (1, 2, 3), 0)
        engine.submit(append)
        assert isinstance(error_of(append.future), Internal)
    assert live_state(engine).history_length == len(PROMPT) + 3
    _append(engine, len(PROMPT), (1, 2, 3), session_id="t")
    (found,) = _append(engine, len(PROMPT) + 3, (4,), 0)
    (expected,) = _append(engine, len(PROMPT) + 3, (4,), 0, "t")
    assert found.logprob == pytest.approx(expected.logprob, rel=1e-5)


def test_what_scoring_costs_is_a_running_mean() -> None:
    costs = ScoringCosts()
    costs.add(4, 2.0)
    assert costs.token_seconds == 0.5
    costs.add(1, 1.5)
    assert costs.token_seconds == 0.75
