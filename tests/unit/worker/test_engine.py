"""The engine with a real model: operations, cancels, errors, and what it says it holds."""

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pytest

from kakeya_shared.errors import (
    Draining,
    EmptyHistory,
    Internal,
    InvariantViolated,
    KakeyaError,
    NoCapacity,
    OperationRunning,
    OperationStopped,
    SessionClosed,
    SessionNotFound,
    StaleEpoch,
)
from kakeya_worker.engine import operation as operations
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lane import LaneGeometry
from kakeya_worker.engine.operation import MAX_UNREAD_TOKENS, Append, Generate, LaneState
from kakeya_worker.engine.sampling import Sampling
from kakeya_worker.torch_backend import TorchVerifier

SINK, WINDOW, NUM_LANES = 4, 64, 3
BYTES = 2_048  # of one token: 4 layers x 2 KV heads x 32 x 4 bytes x K and V
TIMEOUT = 20.0


@pytest.fixture
def engine(verifier: TorchVerifier) -> Iterator[Engine]:
    engine = Engine(verifier, LaneGeometry(SINK, WINDOW, chunk=32), NUM_LANES, step_tokens=64)
    engine.start()
    yield engine
    engine.shut_down()
    assert not engine.crashed.done()


@dataclass
class Tokens:
    """Collects a generate's tokens; `enough` is set once there are `wanted`."""

    wanted: int = 1
    ids: list[int] = field(default_factory=list)
    enough: Event = field(default_factory=Event)

    def __call__(self, token_id: int) -> None:
        self.ids.append(token_id)
        if len(self.ids) >= self.wanted:
            self.enough.set()


def _open(engine: Engine, session_id: str = "s") -> LaneState:
    return engine.open(session_id, 1, SINK, WINDOW).result(TIMEOUT)


def _append(engine: Engine, length: int, num_tokens: int, session_id: str = "s") -> Append:
    append = Append(session_id, 1, length, tuple(range(100, 100 + num_tokens)))
    engine.submit(append)
    return append


def _generate(
    engine: Engine, length: int, max_tokens: int, *, session_id: str = "s", eos: int | None = None, **kwargs: Any
) -> tuple[Generate, Tokens]:
    tokens = Tokens(wanted=kwargs.pop("wanted", 1))
    sampling = Sampling(**kwargs)
    eos_token_ids = frozenset() if eos is None else frozenset({eos})
    generate = Generate(
        session_id, 1, length, max_tokens=max_tokens, eos_token_ids=eos_token_ids, sampling=sampling, on_token=tokens
    )
    engine.submit(generate)
    return generate, tokens


def _live(engine: Engine, session_id: str = "s") -> LaneState:
    """What the engine publishes, the call before it having ended."""
    return {report.session_id: report.state for report in engine.lanes.reports()}[session_id]


def _error(future: "Future[Any]") -> KakeyaError:
    error = future.exception(TIMEOUT)
    assert isinstance(error, KakeyaError)
    return error


def test_bytes_are_zero_then_the_formula_then_a_plateau(engine: Engine) -> None:
    assert _open(engine) == LaneState(0, 0)
    length = 0
    for size in (1, 30, 37, 1, 50, 300):
        result = _append(engine, length, size).future.result(TIMEOUT)
        length += size
        assert result.lane == LaneState(length, min(length, SINK + WINDOW) * BYTES)
        assert result.num_evicted == max(0, length - SINK - WINDOW) - max(0, length - size - SINK - WINDOW)
    generate, tokens = _generate(engine, length, 10)
    done = generate.future.result(TIMEOUT)
    assert done.lane == LaneState(length + 10, (SINK + WINDOW) * BYTES) == _live(engine)
    assert (done.num_generated, done.num_evicted, done.ended_by_eos) == (10, 10, False)
    assert done.prefill_seconds > 0
    assert done.total_seconds > 0
    assert len(tokens.ids) == 10


def test_prefill_time_is_that_of_the_turn(engine: Engine) -> None:
    _open(engine)
    spent = sum(_append(engine, at, 40).future.result(TIMEOUT).prefill_seconds for at in (0, 40))
    first = _generate(engine, 80, 1)[0].future.result(TIMEOUT)
    second = _generate(engine, 81, 1)[0].future.result(TIMEOUT)
    assert first.prefill_seconds == spent
    assert second.prefill_seconds == 0.0


def test_a_stopped_generate_ends_the_turn_of_its_appends(engine: Engine) -> None:
    _open(engine)
    _append(engine, 0, 40).future.result(TIMEOUT)
    generate, tokens = _generate(engine, 40, 10**6)
    assert tokens.enough.wait(TIMEOUT)
    state = engine.stop_operation("s", 1).result(TIMEOUT)
    assert isinstance(_error(generate.future), OperationStopped)
    assert _generate(engine, state.history_length, 1)[0].future.result(TIMEOUT).prefill_seconds == 0.0


def test_an_empty_append_changes_nothing(engine: Engine) -> None:
    _open(engine)
    _append(engine, 0, 5).future.result(TIMEOUT)
    assert _append(engine, 5, 0).future.result(TIMEOUT).lane == LaneState(5, 5 * BYTES)


@pytest.mark.parametrize("sampling", [{}, {"seed": 5, "temperature": 1.0, "top_p": 0.9, "top_k": 50}])
def test_ten_and_ten_are_twenty(engine: Engine, sampling: dict[str, Any]) -> None:
    for session_id in ("whole", "halves"):
        _open(engine, session_id)
        _append(engine, 0, 30, session_id).future.result(TIMEOUT)
    whole, whole_tokens = _generate(engine, 30, 20, session_id="whole", **sampling)
    whole.future.result(TIMEOUT)
    halves = []
    for at in (30, 40):
        half, tokens = _generate(engine, at, 10, session_id="halves", **sampling)
        half.future.result(TIMEOUT)
        halves += tokens.ids
    assert halves == whole_tokens.ids


def test_eos_is_delivered_counted_and_kept(engine: Engine) -> None:
    for session_id in ("free", "ended"):
        _open(engine, session_id)
        _append(engine, 0, 30, session_id).future.result(TIMEOUT)
    generate, tokens = _generate(engine, 30, 20, session_id="free")
    generate.future.result(TIMEOUT)
    position, eos = next((i, t) for i, t in enumerate(tokens.ids) if i >= 3 and t not in tokens.ids[:i])
    generate, tokens = _generate(engine, 30, 20, session_id="ended", eos=eos)
    done = generate.future.result(TIMEOUT)
    assert done.ended_by_eos
    assert tokens.ids[-1] == eos
    assert done.num_generated == position + 1
    assert done.lane == LaneState(31 + position, (31 + position) * BYTES)


def test_sessions_together_equal_each_alone(engine: Engine) -> None:
    alone = []
    for shift in range(NUM_LANES):
        _open(engine, "alone")
        _append(engine, 0, 100 + shift, "alone").future.result(TIMEOUT)
        generate, tokens = _generate(engine, 100 + shift, 60, session_id="alone")
        generate.future.result(TIMEOUT)
        alone.append(tokens.ids)
        engine.close("alone", 1).result(TIMEOUT)
    together = []
    for shift in range(NUM_LANES):
        _open(engine, str(shift))
        _append(engine, 0, 100 + shift, str(shift)).future.result(TIMEOUT)
        together.append(_generate(engine, 100 + shift, 60, session_id=str(shift)))
    for generate, _ in together:
        generate.future.result(TIMEOUT)
    assert [tokens.ids for _, tokens in together] == alone


def test_a_cancelled_generate_keeps_what_it_delivered(engine: Engine) -> None:
    _open(engine)
    _append(engine, 0, 20).future.result(TIMEOUT)
    generate, tokens = _generate(engine, 20, 10**6, wanted=10)
    assert tokens.enough.wait(TIMEOUT)
    engine.cancel(generate)
    assert isinstance(_error(generate.future), OperationStopped)
    state = _live(engine)
    assert state.history_length == 20 + len(tokens.ids)
    assert state.kv_live_bytes == min(state.history_length, SINK + WINDOW) * BYTES
    assert _generate(engine, state.history_length, 1)[0].future.result(TIMEOUT).num_generated == 1


def test_a_cancelled_append_keeps_what_it_prefilled(engine: Engine) -> None:
    _open(engine)
    append = Append("s", 1, 0, (7,) * 100_000)
    engine.submit(append)
    while not any(report.state.history_length for report in engine.lanes.reports()):
        Event().wait(0.001)
    engine.cancel(append)
    assert isinstance(_error(append.future), OperationStopped)
    state = engine.stop_operation("s", 1).result(TIMEOUT)
    assert 0 < state.history_length < 100_000
    assert state.history_length % 32 == 0
    assert state == _live(engine)


def test_stop_ends_what_runs_and_tells_the_truth(engine: Engine) -> None:
    _open(engine)
    _append(engine, 0, 20).future.result(TIMEOUT)
    assert engine.stop_operation("s", 1).result(TIMEOUT) == LaneState(20, 20 * BYTES)
    generate, tokens = _generate(engine, 20, 10**6)
    assert tokens.enough.wait(TIMEOUT)
    state = engine.stop_operation("s", 1).result(TIMEOUT)
    assert isinstance(_error(generate.future), OperationStopped)
    assert state.history_length == 20 + len(tokens.ids)


def test_close_wins_over_what_runs(engine: Engine) -> None:
    _open(engine)
    _append(engine, 0, 20).future.result(TIMEOUT)
    generate, tokens = _generate(engine, 20, 10**6)
    assert tokens.enough.wait(TIMEOUT)
    length = engine.close("s", 1).result(TIMEOUT)
    assert isinstance(_error(generate.future), SessionClosed)
    assert length == 20 + len(tokens.ids)
    assert engine.lanes.totals().num_lanes_in_use == 0
    assert isinstance(_error(engine.close("s", 1)), SessionNotFound)


def test_refusals_change_nothing(engine: Engine) -> None:
    _open(engine)
    assert isinstance(_error(_generate(engine, 0, 1)[0].future), EmptyHistory)
    _append(engine, 0, 20).future.result(TIMEOUT)
    assert isinstance(_error(engine.open("s", 2, SINK, WINDOW)), StaleEpoch)
    assert isinstance(_error(engine.stop_operation("s", 2)), StaleEpoch)
    assert isinstance(_error(engine.stop_operation("other", 1)), SessionNotFound)
    generate, tokens = _generate(engine, 20, 10**6)
    assert tokens.enough.wait(TIMEOUT)
    assert isinstance(_error(_append(engine, 20, 1).future), OperationRunning)
    engine.cancel(generate)
    assert isinstance(_error(generate.future), OperationStopped)
    assert engine.open("s", 1, SINK, WINDOW).result(TIMEOUT) == _live(engine)  # repeated: answered as it is


def test_lanes_run_out_and_come_back(engine: Engine) -> None:
    for number in range(NUM_LANES):
        _open(engine, str(number))
    assert isinstance(_error(engine.open("more", 1, SINK, WINDOW)), NoCapacity)
    engine.close("1", 1).result(TIMEOUT)
    _open(engine, "more")
    _append(engine, 0, 10, "more").future.result(TIMEOUT)
    totals = engine.lanes.totals()
    assert totals.kv_live_bytes == 10 * BYTES
    assert (totals.num_lanes, totals.num_lanes_in_use) == (NUM_LANES, NUM_LANES)
    assert totals.slab_bytes == NUM_LANES * totals.lane_bytes == NUM_LANES * 100 * BYTES


def test_a_length_that_differs_from_the_record_is_inv1_and_frees_the_lane(engine: Engine) -> None:
    _open(engine)
    _append(engine, 0, 20).future.result(TIMEOUT)
    error = _error(_append(engine, 21, 1).future)
    assert isinstance(error, InvariantViolated)
    assert error.metadata == {"invariant": "inv1"}
    assert engine.lanes.totals().num_lanes_in_use == 0


def test_an_invariant_violated_by_a_commit_fails_the_operation(engine: Engine) -> None:
    _open(engine)
    append = _append(engine, 0, 20)
    append.future.result(TIMEOUT)
    append.lane.slot_indices[3] = -1  # a slot is lost
    assert isinstance(_error(_generate(engine, 20, 5)[0].future), InvariantViolated)
    assert engine.lanes.totals().num_lanes_in_use == 0


def test_a_failed_forward_pass_fails_its_rows_and_keeps_what_is_committed(
    engine: Engine, verifier: TorchVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    _open(engine)
    _append(engine, 0, 20).future.result(TIMEOUT)

    def broken(rows: object) -> None:
        raise RuntimeError("secret")

    with monkeypatch.context() as patch:
        patch.setattr(verifier, "forward", broken)
        error = _error(_append(engine, 20, 5).future)
    assert isinstance(error, Internal)
    assert "secret" not in error.message
    assert _live(engine) == LaneState(20, 20 * BYTES)
    assert _append(engine, 20, 5).future.result(TIMEOUT).lane.history_length == 25


def test_failing_logits_fail_the_step_and_not_the_engine(
    engine: Engine, verifier: TorchVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    _open(engine)
    _append(engine, 0, 20).future.result(TIMEOUT)

    def broken(lanes: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(verifier, "logits", broken)
        assert isinstance(_error(_generate(engine, 20, 5)[0].future), Internal)
    assert _generate(engine, 20, 5)[0].future.result(TIMEOUT).num_generated == 5


def test_logits_that_are_not_finite_fail_one_session_only(
    engine: Engine, verifier: TorchVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    for session_id in ("sick", "well"):
        _open(engine, session_id)
        _append(engine, 0, 20, session_id).future.result(TIMEOUT)
    sick_lane = 0
    verifier.slab.final_hidden[sick_lane] = float("nan")
    sick, _ = _generate(engine, 20, 5, session_id="sick")
    well, _ = _generate(engine, 20, 5, session_id="well")
    assert isinstance(_error(sick.future), Internal)
    assert well.future.result(TIMEOUT).num_generated == 5
    assert _live(engine, "sick") == LaneState(20, 20 * BYTES)


def test_a_reader_that_lags_pauses_its_row_only(engine: Engine) -> None:
    for session_id in ("slow", "quick"):
        _open(engine, session_id)
        _append(engine, 0, 20, session_id).future.result(TIMEOUT)
    slow, slow_tokens = _generate(engine, 20, 100, session_id="slow", wanted=MAX_UNREAD_TOKENS)
    assert slow_tokens.enough.wait(TIMEOUT)
    quick, _ = _generate(engine, 20, 60, session_id="quick")
    assert quick.future.result(TIMEOUT).num_generated == 60
    assert len(slow_tokens.ids) == MAX_UNREAD_TOKENS
    assert not slow.future.done()
    for _ in range(100 - MAX_UNREAD_TOKENS):
        engine.acknowledge(slow)
    assert slow.future.result(TIMEOUT).num_generated == 100


def test_a_reader_that_never_reads_is_given_up(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MAX_PAUSE_SECONDS", 0.1)
    _open(engine)
    _append(engine, 0, 20).future.result(TIMEOUT)
    generate, _ = _generate(engine, 20, 1000)
    assert isinstance(_error(generate.future), OperationStopped)
    assert _live(engine).history_length == 20 + MAX_UNREAD_TOKENS


def test_reports_tell_what_changed(engine: Engine) -> None:
    for session_id in ("a", "b"):
        _open(engine, session_id)
    revision = max(report.revision for report in engine.lanes.reports())
    assert engine.lanes.reports(revision) == ()
    _append(engine, 0, 3, "b").future.result(TIMEOUT)
    (report,) = engine.lanes.reports(revision)
    assert (report.session_id, report.state) == ("b", LaneState(3, 3 * BYTES))


def test_reset_frees_every_lane(engine: Engine) -> None:
    _open(engine, "idle")
    _open(engine, "busy")
    _append(engine, 0, 20, "busy").future.result(TIMEOUT)
    generate, tokens = _generate(engine, 20, 10**6, session_id="busy")
    assert tokens.enough.wait(TIMEOUT)
    engine.reset().result(TIMEOUT)
    assert isinstance(_error(generate.future), SessionClosed)
    assert engine.lanes.totals().num_lanes_in_use == 0


def test_shut_down_ends_what_runs_and_refuses_what_comes(verifier: TorchVerifier) -> None:
    engine = Engine(verifier, LaneGeometry(SINK, WINDOW, 32), NUM_LANES, step_tokens=64)
    engine.start()
    _open(engine)
    _append(engine, 0, 20).future.result(TIMEOUT)
    generate, tokens = _generate(engine, 20, 10**6)
    assert tokens.enough.wait(TIMEOUT)
    engine.shut_down()
    assert isinstance(_error(generate.future), Draining)
    assert isinstance(_error(_append(engine, 20, 1).future), Draining)
    assert isinstance(_error(engine.open("late", 1, SINK, WINDOW)), Draining)
    assert engine.close("s", 1).result(TIMEOUT) == 20 + len(tokens.ids)


def test_shut_down_lets_what_runs_use_its_grace(verifier: TorchVerifier) -> None:
    engine = Engine(verifier, LaneGeometry(SINK, WINDOW, 32), NUM_LANES, step_tokens=64)
    engine.start()
    _open(engine)
    _append(engine, 0, 20).future.result(TIMEOUT)
    generate, tokens = _generate(engine, 20, 60)
    assert tokens.enough.wait(TIMEOUT)
    engine.shut_down(grace_seconds=TIMEOUT)
    assert generate.future.result(TIMEOUT).num_generated == 60


def test_a_dead_thread_is_told(verifier: TorchVerifier, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(verifier, LaneGeometry(SINK, WINDOW, 32), NUM_LANES, step_tokens=64)
    monkeypatch.setattr(engine._scheduler, "next_step", lambda: 1 / 0)
    engine.start()
    _open(engine)
    append = _append(engine, 0, 20)
    assert isinstance(engine.crashed.exception(TIMEOUT), ZeroDivisionError)
    assert isinstance(_error(append.future), Draining)  # nobody waits for a thread that is gone
    assert isinstance(_error(engine.open("late", 1, SINK, WINDOW)), Draining)


def test_the_slab_is_what_the_bytes_say(verifier: TorchVerifier) -> None:
    verifier.allocate(LaneGeometry(SINK, WINDOW, 32), NUM_LANES)
    tensors = (*verifier.slab.keys, *verifier.slab.values)
    assert sum(tensor.nbytes for tensor in tensors) == NUM_LANES * 100 * verifier.facts.kv_bytes_per_token
    assert verifier.facts.kv_bytes_per_token == BYTES
