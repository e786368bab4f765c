"""The engine with a real model: operations, cancels, errors, and what it says it holds."""

from threading import Event, Thread
from typing import Any

import pytest
from structlog.testing import capture_logs

from kakeya_shared.contract.history_digest import EMPTY_HISTORY, extended_digest
from kakeya_shared.errors.tree import (
    Draining,
    EmptyHistory,
    HistoryLengthMismatch,
    Internal,
    InvariantViolated,
    NoCapacity,
    OperationRunning,
    OperationStopped,
    SessionClosed,
    SessionNotFound,
    StaleEpoch,
)
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes import operation as operations
from kakeya_worker.engine.lanes.lane_state import ForkSource, OpenLane
from kakeya_worker.engine.lanes.operation import MAX_UNREAD_TOKENS, Append
from kakeya_worker.engine.lanes.results import Finish
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, SinkWindow, sink_window
from kakeya_worker.engine.steps.scheduler import Scheduler
from kakeya_worker.torch_backend import TorchVerifier
from tests.unit.worker.engine_calls import (
    BYTES,
    NUM_LANES,
    NUM_SLOTS,
    SINK,
    TIMEOUT,
    WINDOW,
    end_of_step,
    error_of,
    live_state,
    open_session,
    start_append,
    start_generate,
    state_of,
)


def test_bytes_are_zero_then_the_formula_then_a_plateau(engine: Engine) -> None:
    assert open_session(engine) == OpenLane(state_of(0), SINK, WINDOW)
    length = 0
    for size in (1, 30, 37, 1, 50, 300):
        result = start_append(engine, length, size).future.result(TIMEOUT)
        length += size
        assert result.lane == state_of(length)
        assert result.num_evicted == max(0, length - SINK - WINDOW) - max(0, length - size - SINK - WINDOW)
    generate, tokens = start_generate(engine, length, 10)
    done = generate.future.result(TIMEOUT)
    assert done.lane == state_of(length + 10) == live_state(engine)
    assert done.lane.kv_live_bytes == (SINK + WINDOW) * BYTES
    assert (done.num_generated, done.num_evicted, done.finish) == (10, 10, Finish.MAX_TOKENS)
    assert done.prefill_seconds > 0
    assert done.total_seconds > 0
    assert len(tokens.ids) == 10


def test_prefill_time_is_that_of_the_turn(engine: Engine) -> None:
    open_session(engine)
    spent = sum(start_append(engine, at, 40).future.result(TIMEOUT).prefill_seconds for at in (0, 40))
    first = start_generate(engine, 80, 1)[0].future.result(TIMEOUT)
    second = start_generate(engine, 81, 1)[0].future.result(TIMEOUT)
    assert first.prefill_seconds == spent
    assert second.prefill_seconds == 0.0


def test_a_stopped_generate_ends_the_turn_of_its_appends(engine: Engine) -> None:
    open_session(engine)
    start_append(engine, 0, 40).future.result(TIMEOUT)
    generate, tokens = start_generate(engine, 40, 10**6)
    assert tokens.enough.wait(TIMEOUT)
    state = engine.stop_operation("s", 1).result(TIMEOUT).state
    assert isinstance(error_of(generate.future), OperationStopped)
    assert start_generate(engine, state.history_length, 1)[0].future.result(TIMEOUT).prefill_seconds == 0.0


def test_an_empty_append_changes_nothing(engine: Engine) -> None:
    open_session(engine)
    start_append(engine, 0, 5).future.result(TIMEOUT)
    assert start_append(engine, 5, 0).future.result(TIMEOUT).lane == state_of(5)


def test_sessions_together_equal_each_alone(engine: Engine) -> None:
    alone = []
    for shift in range(NUM_LANES):
        open_session(engine, "alone")
        start_append(engine, 0, 100 + shift, "alone").future.result(TIMEOUT)
        generate, tokens = start_generate(engine, 100 + shift, 60, session_id="alone")
        generate.future.result(TIMEOUT)
        alone.append(tokens.ids)
        engine.close("alone", 1).result(TIMEOUT)
    together = []
    for shift in range(NUM_LANES):
        open_session(engine, str(shift))
        start_append(engine, 0, 100 + shift, str(shift)).future.result(TIMEOUT)
        together.append(start_generate(engine, 100 + shift, 60, session_id=str(shift)))
    for generate, _ in together:
        generate.future.result(TIMEOUT)
    assert [tokens.ids for _, tokens in together] == alone


def test_a_cancelled_generate_keeps_what_it_delivered(engine: Engine) -> None:
    open_session(engine)
    start_append(engine, 0, 20).future.result(TIMEOUT)
    generate, tokens = start_generate(engine, 20, 10**6, wanted=10)
    assert tokens.enough.wait(TIMEOUT)
    engine.cancel(generate)
    assert isinstance(error_of(generate.future), OperationStopped)
    state = live_state(engine)
    assert state == state_of(20 + len(tokens.ids))
    assert start_generate(engine, state.history_length, 1)[0].future.result(TIMEOUT).num_generated == 1


def test_a_cancelled_append_keeps_what_it_prefilled(engine: Engine) -> None:
    open_session(engine)
    append = Append("s", 1, 0, (7,) * 100_000)
    engine.submit(append)
    while not any(report.state.history_length for report in engine.lanes.reports()):
        Event().wait(0.001)
    engine.cancel(append)
    assert isinstance(error_of(append.future), OperationStopped)
    state = engine.stop_operation("s", 1).result(TIMEOUT).state
    assert 0 < state.history_length < 100_000
    assert state.history_length % 32 == 0
    assert state == live_state(engine)


def test_stop_ends_what_runs_and_tells_the_truth(engine: Engine) -> None:
    open_session(engine)
    start_append(engine, 0, 20).future.result(TIMEOUT)
    assert engine.stop_operation("s", 1).result(TIMEOUT).state == state_of(20)
    generate, tokens = start_generate(engine, 20, 10**6)
    assert tokens.enough.wait(TIMEOUT)
    state = engine.stop_operation("s", 1).result(TIMEOUT).state
    assert isinstance(error_of(generate.future), OperationStopped)
    assert state.history_length == 20 + len(tokens.ids)


def test_close_wins_over_what_runs(engine: Engine) -> None:
    open_session(engine)
    start_append(engine, 0, 20).future.result(TIMEOUT)
    generate, tokens = start_generate(engine, 20, 10**6)
    assert tokens.enough.wait(TIMEOUT)
    length = engine.close("s", 1).result(TIMEOUT)
    assert isinstance(error_of(generate.future), SessionClosed)
    assert length == 20 + len(tokens.ids)
    assert engine.lanes.totals().num_lanes_in_use == 0
    assert isinstance(error_of(engine.close("s", 1)), SessionNotFound)


def test_what_a_router_sends_late_changes_nothing(engine: Engine) -> None:
    open_session(engine)
    start_append(engine, 0, 20, number=3).future.result(TIMEOUT)
    assert engine.stop_operation("s", 1, operation_number=5).result(TIMEOUT).state == state_of(20)
    for late in (start_append(engine, 20, 1, number=4), start_generate(engine, 20, 1, number=4)[0]):
        assert isinstance(error_of(late.future), StaleEpoch)
    generate, tokens = start_generate(engine, 20, 10**6, number=5)
    assert tokens.enough.wait(TIMEOUT)
    assert isinstance(error_of(engine.stop_operation("s", 1, operation_number=4)), StaleEpoch)
    assert not generate.future.done()
    stopped = engine.stop_operation("s", 1).result(TIMEOUT).state  # by an older router, which numbers nothing
    start_append(engine, stopped.history_length, 1, number=5).future.result(TIMEOUT)


def test_refusals_change_nothing(engine: Engine) -> None:
    open_session(engine)
    assert isinstance(error_of(start_generate(engine, 0, 1)[0].future), EmptyHistory)
    start_append(engine, 0, 20).future.result(TIMEOUT)
    assert isinstance(error_of(engine.open("s", 0, SessionOptions())), StaleEpoch)
    assert isinstance(error_of(engine.stop_operation("s", 2)), StaleEpoch)
    assert isinstance(error_of(engine.stop_operation("other", 1)), SessionNotFound)
    generate, tokens = start_generate(engine, 20, 10**6)
    assert tokens.enough.wait(TIMEOUT)
    assert isinstance(error_of(start_append(engine, 20, 1).future), OperationRunning)
    engine.cancel(generate)
    assert isinstance(error_of(generate.future), OperationStopped)
    assert engine.open("s", 1, SessionOptions()).result(TIMEOUT).state == live_state(
        engine
    )  # repeated: answered as it is


def test_lanes_run_out_and_come_back(engine: Engine) -> None:
    for number in range(NUM_LANES):
        open_session(engine, str(number))
    assert isinstance(error_of(engine.open("more", 1, SessionOptions())), NoCapacity)
    engine.close("1", 1).result(TIMEOUT)
    open_session(engine, "more")
    start_append(engine, 0, 10, "more").future.result(TIMEOUT)
    totals = engine.lanes.totals()
    assert totals.kv_live_bytes == 10 * BYTES
    assert (totals.num_lanes, totals.num_lanes_in_use) == (NUM_LANES, NUM_LANES)
    assert totals.slab_bytes == NUM_LANES * totals.lane_bytes == NUM_LANES * NUM_SLOTS * BYTES


def test_a_lane_that_is_not_as_the_record_says_is_refused_and_stays(engine: Engine) -> None:
    """The router's store may have been set back: it sees to the lane."""
    open_session(engine)
    state = start_append(engine, 0, 20).future.result(TIMEOUT).lane
    assert state.history_digest == extended_digest(EMPTY_HISTORY, range(100, 120))
    assert isinstance(error_of(start_append(engine, 21, 1).future), HistoryLengthMismatch)
    for differs in (0, EMPTY_HISTORY):
        append = Append("s", 1, 20, (120,), history_digest=differs)
        engine.submit(append)
        assert isinstance(error_of(append.future), HistoryLengthMismatch)
        error = error_of(engine.rewind("s", 1, 20, 10, history_digest=differs))
        assert isinstance(error, HistoryLengthMismatch)
        error = error_of(engine.fork("t", 1, ForkSource("s", 1, 20, differs)))
        assert isinstance(error, HistoryLengthMismatch)
    rewound = engine.rewind("s", 1, 20, 10, history_digest=state.history_digest).result(TIMEOUT)
    assert rewound.history_digest == extended_digest(EMPTY_HISTORY, range(100, 110))
    assert engine.lanes.totals().num_lanes_in_use == 1


def test_an_invariant_violated_by_a_commit_fails_the_operation(engine: Engine) -> None:
    open_session(engine)
    append = start_append(engine, 0, 20)
    append.future.result(TIMEOUT)
    append.lane.slot_indices[3] = -1  # a slot is lost
    assert isinstance(error_of(start_generate(engine, 20, 5)[0].future), InvariantViolated)
    assert engine.lanes.totals().num_lanes_in_use == 0


def test_a_failed_forward_pass_fails_its_rows_and_keeps_what_is_committed(
    engine: Engine, verifier: TorchVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_session(engine)
    start_append(engine, 0, 20).future.result(TIMEOUT)

    def broken(rows: object) -> None:
        raise RuntimeError("secret")

    with monkeypatch.context() as patch:
        patch.setattr(verifier, "forward", broken)
        error = error_of(start_append(engine, 20, 5).future)
    assert isinstance(error, Internal)
    assert "secret" not in error.message
    assert live_state(engine) == state_of(20)
    assert start_append(engine, 20, 5).future.result(TIMEOUT).lane.history_length == 25


def test_failing_logits_fail_the_step_and_not_the_engine(
    engine: Engine, verifier: TorchVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_session(engine)
    start_append(engine, 0, 20).future.result(TIMEOUT)

    def broken(lanes: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(verifier, "logits", broken)
        assert isinstance(error_of(start_generate(engine, 20, 5)[0].future), Internal)
    assert start_generate(engine, 20, 5)[0].future.result(TIMEOUT).num_generated == 5


@pytest.fixture
def accounted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, bool]]:
    """Seconds of the steps that were accounted for, and whether each was whole."""
    calls = []
    account = Scheduler.account

    def recorded(scheduler: Scheduler, seconds: float, *, is_whole: bool, **others: Any) -> None:
        calls.append((seconds, is_whole))
        account(scheduler, seconds, is_whole=is_whole, **others)

    monkeypatch.setattr(Scheduler, "account", recorded)
    return calls


def test_a_failed_step_is_accounted_for_and_measures_nothing(
    engine: Engine, verifier: TorchVerifier, accounted: list[tuple[float, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_session(engine)
    start_append(engine, 0, 20).future.result(TIMEOUT)
    end_of_step(engine, 20)
    assert [is_whole for _, is_whole in accounted] == [True]

    def broken(rows: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(verifier, "forward", broken)
        error_of(start_append(engine, 20, 5).future)
        end_of_step(engine, 20)
    assert [is_whole for _, is_whole in accounted] == [True, False]
    assert accounted[1][0] > 0.0


def test_a_step_without_a_planned_row_measures_nothing(
    engine: Engine, verifier: TorchVerifier, accounted: list[tuple[float, bool]]
) -> None:
    open_session(engine)
    start_append(engine, 0, 20).future.result(TIMEOUT)
    verifier.slab.final_hidden[0] = float("nan")
    error_of(start_generate(engine, 20, 5)[0].future)
    end_of_step(engine, 20)
    assert [is_whole for _, is_whole in accounted] == [True, False]


def test_logits_that_are_not_finite_fail_one_session_only(
    engine: Engine, verifier: TorchVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    for session_id in ("sick", "well"):
        open_session(engine, session_id)
        start_append(engine, 0, 20, session_id).future.result(TIMEOUT)
    sick_lane = 0
    verifier.slab.final_hidden[sick_lane] = float("nan")
    sick, _ = start_generate(engine, 20, 5, session_id="sick")
    well, _ = start_generate(engine, 20, 5, session_id="well")
    assert isinstance(error_of(sick.future), Internal)
    assert well.future.result(TIMEOUT).num_generated == 5
    with capture_logs() as logs:
        assert isinstance(error_of(start_generate(engine, 20, 5, session_id="sick")[0].future), Internal)
    assert [line["event"] for line in logs] == ["sampling failed"], "alone in its step, it fails nothing else"
    assert live_state(engine, "sick") == state_of(20)


def test_a_retention_policy_that_breaks_is_one_caller_s_error(verifier: TorchVerifier) -> None:
    def broken(options: SessionOptions, geometry: LaneGeometry) -> SinkWindow:
        if options.pin:
            raise ZeroDivisionError
        return sink_window(options, geometry)

    engine = Engine(verifier, LaneGeometry(SINK, WINDOW, 32), NUM_LANES, step_tokens=64, retention=broken)
    engine.start()
    assert isinstance(error_of(engine.open("s", 1, SessionOptions(pin=1))), Internal)
    assert open_session(engine).sink == SINK
    engine.shut_down()


def test_a_reader_that_lags_pauses_its_row_only(engine: Engine) -> None:
    for session_id in ("slow", "quick"):
        open_session(engine, session_id)
        start_append(engine, 0, 20, session_id).future.result(TIMEOUT)
    slow, slow_tokens = start_generate(engine, 20, 100, session_id="slow", wanted=MAX_UNREAD_TOKENS)
    assert slow_tokens.enough.wait(TIMEOUT)
    quick, _ = start_generate(engine, 20, 60, session_id="quick")
    assert quick.future.result(TIMEOUT).num_generated == 60
    assert len(slow_tokens.ids) == MAX_UNREAD_TOKENS
    assert not slow.future.done()
    for num_read in range(1, 101 - MAX_UNREAD_TOKENS):
        engine.acknowledge(slow, num_read)
    assert slow.future.result(TIMEOUT).num_generated == 100


def test_what_was_read_never_falls_and_never_exceeds_what_was_generated(engine: Engine) -> None:
    open_session(engine)
    start_append(engine, 0, 20).future.result(TIMEOUT)
    generate, tokens = start_generate(engine, 20, 3 * MAX_UNREAD_TOKENS, wanted=MAX_UNREAD_TOKENS)
    assert tokens.enough.wait(TIMEOUT)
    assert generate.is_paused
    tokens.enough.clear()
    tokens.wanted = 2 * MAX_UNREAD_TOKENS
    engine.acknowledge(generate, 10**6)
    assert tokens.enough.wait(TIMEOUT)
    engine.acknowledge(generate, 5)
    assert (generate.num_read, generate.num_generated) == (MAX_UNREAD_TOKENS, 2 * MAX_UNREAD_TOKENS)
    engine.acknowledge(generate, 2 * MAX_UNREAD_TOKENS)
    assert generate.future.result(TIMEOUT).num_generated == 3 * MAX_UNREAD_TOKENS


def test_a_reader_that_never_reads_is_given_up(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MAX_PAUSE_SECONDS", 0.1)
    open_session(engine)
    start_append(engine, 0, 20).future.result(TIMEOUT)
    generate, _ = start_generate(engine, 20, 1000)
    assert isinstance(error_of(generate.future), OperationStopped)
    assert live_state(engine).history_length == 20 + MAX_UNREAD_TOKENS


def test_reports_tell_what_changed(engine: Engine) -> None:
    for session_id in ("a", "b"):
        open_session(engine, session_id)
    revision = max(report.revision for report in engine.lanes.reports())
    assert engine.lanes.reports(revision) == ()
    start_append(engine, 0, 3, "b").future.result(TIMEOUT)
    (report,) = engine.lanes.reports(revision)
    assert (report.session_id, report.state) == ("b", state_of(3))


def test_reset_frees_every_lane(engine: Engine) -> None:
    open_session(engine, "idle")
    open_session(engine, "busy")
    start_append(engine, 0, 20, "busy").future.result(TIMEOUT)
    generate, tokens = start_generate(engine, 20, 10**6, session_id="busy")
    assert tokens.enough.wait(TIMEOUT)
    engine.reset().result(TIMEOUT)
    assert isinstance(error_of(generate.future), SessionClosed)
    assert engine.lanes.totals().num_lanes_in_use == 0


def test_shut_down_ends_what_runs_and_refuses_what_comes(verifier: TorchVerifier) -> None:
    engine = Engine(verifier, LaneGeometry(SINK, WINDOW, 32), NUM_LANES, step_tokens=64)
    engine.start()
    open_session(engine)
    start_append(engine, 0, 20).future.result(TIMEOUT)
    generate, tokens = start_generate(engine, 20, 10**6)
    assert tokens.enough.wait(TIMEOUT)
    engine.shut_down()
    assert isinstance(error_of(generate.future), Draining)
    assert isinstance(error_of(start_append(engine, 20, 1).future), Draining)
    assert isinstance(error_of(engine.open("late", 1, SessionOptions())), Draining)
    assert engine.close("s", 1).result(TIMEOUT) == 20 + len(tokens.ids)


def test_shut_down_lets_what_runs_use_its_grace(verifier: TorchVerifier) -> None:
    engine = Engine(verifier, LaneGeometry(SINK, WINDOW, 32), NUM_LANES, step_tokens=64)
    engine.start()
    open_session(engine)
    start_append(engine, 0, 20).future.result(TIMEOUT)
    generate, tokens = start_generate(engine, 20, 60)
    assert tokens.enough.wait(TIMEOUT)
    engine.shut_down(grace_seconds=TIMEOUT)
    assert generate.future.result(TIMEOUT).num_generated == 60


def test_shut_down_waits_until_its_sessions_are_taken_away(verifier: TorchVerifier) -> None:
    engine = Engine(verifier, LaneGeometry(SINK, WINDOW, 32), NUM_LANES, step_tokens=64)
    engine.start()
    for session_id in ("idle", "busy"):
        open_session(engine, session_id)
        start_append(engine, 0, 20, session_id).future.result(TIMEOUT)
    generate, tokens = start_generate(engine, 20, 60, session_id="busy")
    assert tokens.enough.wait(TIMEOUT)
    ending = Thread(target=lambda: engine.shut_down(10 * TIMEOUT, until_empty=True))
    ending.start()
    assert generate.future.result(TIMEOUT).num_generated == 60
    while not isinstance(error_of(engine.open("late", 1, SessionOptions())), Draining):
        continue
    assert isinstance(error_of(start_append(engine, 20, 1, "idle").future), Draining)
    assert engine.take_snapshot("idle", 1).length == 20
    assert engine.stop_operation("idle", 1).result(TIMEOUT).state == state_of(20)
    assert engine.close("busy", 1).result(TIMEOUT) == 80
    ending.join(0.2)
    assert ending.is_alive(), "one is left"
    assert engine.close("idle", 1).result(TIMEOUT) == 20
    ending.join(TIMEOUT)
    assert not ending.is_alive()


def test_what_runs_ends_early_enough_for_its_session_to_be_taken_away(
    verifier: TorchVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kakeya_worker.engine.ending._SHARE_OF_WHAT_RUNS", 1e-4)
    monkeypatch.setattr("kakeya_worker.engine.engine._PAUSE_CHECK_SECONDS", 10 * TIMEOUT)
    engine = Engine(verifier, LaneGeometry(SINK, WINDOW, 32), NUM_LANES, step_tokens=64)
    engine.start()
    open_session(engine)
    start_append(engine, 0, 20).future.result(TIMEOUT)
    generate, tokens = start_generate(engine, 20, 10**6, wanted=MAX_UNREAD_TOKENS)
    assert tokens.enough.wait(TIMEOUT)
    ending = Thread(target=lambda: engine.shut_down(10 * TIMEOUT, until_empty=True))
    ending.start()
    assert isinstance(error_of(generate.future), Draining)
    assert engine.take_snapshot("s", 1).length == 20 + len(tokens.ids)
    assert ending.is_alive()
    assert engine.close("s", 1).result(TIMEOUT) == 20 + len(tokens.ids)
    ending.join(TIMEOUT)
    assert not ending.is_alive()


def test_sessions_that_nobody_takes_away_have_the_grace_and_no_more(verifier: TorchVerifier) -> None:
    engine = Engine(verifier, LaneGeometry(SINK, WINDOW, 32), NUM_LANES, step_tokens=64)
    engine.start()
    open_session(engine)
    engine.shut_down(0.05, until_empty=True)
    assert isinstance(error_of(engine.open("late", 1, SessionOptions())), Draining)


def test_a_row_that_is_paused_does_not_prolong_the_grace(
    verifier: TorchVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kakeya_worker.engine.engine._PAUSE_CHECK_SECONDS", 10 * TIMEOUT)
    engine = Engine(verifier, LaneGeometry(SINK, WINDOW, 32), NUM_LANES, step_tokens=64)
    engine.start()
    open_session(engine)
    start_append(engine, 0, 20).future.result(TIMEOUT)
    generate, tokens = start_generate(engine, 20, 10**6, wanted=MAX_UNREAD_TOKENS)
    assert tokens.enough.wait(TIMEOUT)
    engine.shut_down(0.05)
    assert isinstance(error_of(generate.future), Draining)


def test_idle_sessions_that_are_abandoned_are_not_waited_for(verifier: TorchVerifier) -> None:
    engine = Engine(verifier, LaneGeometry(SINK, WINDOW, 32), NUM_LANES, step_tokens=64)
    engine.start()
    for session_id in ("idle", "busy"):
        open_session(engine, session_id)
        start_append(engine, 0, 20, session_id).future.result(TIMEOUT)
    generate, tokens = start_generate(engine, 20, 60, session_id="busy", wanted=1)
    assert tokens.enough.wait(TIMEOUT)
    ending = Thread(target=lambda: engine.shut_down(10 * TIMEOUT, until_empty=True))
    ending.start()
    while not isinstance(error_of(engine.open("late", 1, SessionOptions())), Draining):
        continue
    engine.abandon_idle()
    ending.join(TIMEOUT)
    assert not ending.is_alive()
    assert generate.future.result(TIMEOUT).num_generated == 60


def test_a_dead_thread_is_told(verifier: TorchVerifier, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(verifier, LaneGeometry(SINK, WINDOW, 32), NUM_LANES, step_tokens=64)
    monkeypatch.setattr(engine._scheduler, "next_step", lambda: 1 / 0)
    engine.start()
    open_session(engine)
    append = start_append(engine, 0, 20)
    assert isinstance(engine.crashed.exception(TIMEOUT), ZeroDivisionError)
    assert isinstance(error_of(append.future), Draining)  # nobody waits for a thread that is gone
    assert isinstance(error_of(engine.open("late", 1, SessionOptions())), Draining)


def test_the_slab_is_what_the_bytes_say(verifier: TorchVerifier) -> None:
    verifier.allocate(LaneGeometry(SINK, WINDOW, 32), NUM_LANES)
    tensors = (*verifier.slab.keys, *verifier.slab.values)
    assert sum(tensor.nbytes for tensor in tensors) == NUM_LANES * NUM_SLOTS * verifier.facts.kv_bytes_per_token
    assert verifier.facts.kv_bytes_per_token == BYTES
