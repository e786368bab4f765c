"""Generates on a real model: what they choose, what ends them, what they tell of their choices."""

import math
from typing import Any

import pytest

from kakeya_shared.errors.tree import HistoryFull, InvalidField, OperationStopped, SessionNotFound
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.lane_state import LaneState, OpenLane
from kakeya_worker.engine.lanes.results import Finish
from kakeya_worker.engine.seams.retention import SessionOptions
from tests.unit.worker.engine_calls import (
    BYTES,
    TIMEOUT,
    error_of,
    live_state,
    open_session,
    start_append,
    start_generate,
    state_of,
)


@pytest.mark.parametrize("sampling", [{}, {"seed": 5, "temperature": 1.0, "top_p": 0.9, "top_k": 50}])
def test_ten_and_ten_are_twenty(engine: Engine, sampling: dict[str, Any]) -> None:
    for session_id in ("whole", "halves"):
        open_session(engine, session_id)
        start_append(engine, 0, 30, session_id).future.result(TIMEOUT)
    whole, whole_tokens = start_generate(engine, 30, 20, session_id="whole", **sampling)
    whole.future.result(TIMEOUT)
    halves = []
    for at in (30, 40):
        half, tokens = start_generate(engine, at, 10, session_id="halves", **sampling)
        half.future.result(TIMEOUT)
        halves += tokens.ids
    assert halves == whole_tokens.ids


def test_eos_is_delivered_counted_and_kept(engine: Engine) -> None:
    for session_id in ("free", "ended"):
        open_session(engine, session_id)
        start_append(engine, 0, 30, session_id).future.result(TIMEOUT)
    generate, tokens = start_generate(engine, 30, 20, session_id="free")
    generate.future.result(TIMEOUT)
    position, eos = next((i, t) for i, t in enumerate(tokens.ids) if i >= 3 and t not in tokens.ids[:i])
    generate, tokens = start_generate(engine, 30, 20, session_id="ended", eos={eos})
    done = generate.future.result(TIMEOUT)
    assert done.finish is Finish.EOS
    assert tokens.ids[-1] == eos
    assert done.num_generated == position + 1
    assert done.lane == state_of(31 + position)


@pytest.fixture
def prompted(engine: Engine) -> Engine:
    """With two sessions, "free" and "s", of the same 30 tokens."""
    for session_id in ("free", "s"):
        open_session(engine, session_id)
        start_append(engine, 0, 30, session_id).future.result(TIMEOUT)
    return engine


def _greedy_ids(engine: Engine, num_tokens: int) -> list[int]:
    """What the session "s" generates too, unless something ends it or changes its choices."""
    generate, tokens = start_generate(engine, 30, num_tokens, session_id="free")
    generate.future.result(TIMEOUT)
    return tokens.ids


def test_a_stop_sequence_is_delivered_counted_and_kept(prompted: Engine) -> None:
    ids = _greedy_ids(prompted, 20)
    sequences = (tuple(ids[2:5]), (1023, ids[0]), tuple(ids[3:9]))
    generate, tokens = start_generate(prompted, 30, 20, stop_token_sequences=sequences)
    done = generate.future.result(TIMEOUT)
    assert (done.finish, done.num_generated) == (Finish.STOP_SEQUENCE, 5)
    assert tokens.ids == ids[:5]
    assert done.lane == state_of(35) == live_state(prompted)


def test_a_stop_sequence_lies_within_one_generate(prompted: Engine) -> None:
    ids = _greedy_ids(prompted, 4)
    first = start_generate(prompted, 30, 2)[0].future.result(TIMEOUT)
    second = start_generate(prompted, 32, 2, stop_token_sequences=(tuple(ids[1:3]),))[0].future.result(TIMEOUT)
    assert (first.finish, second.finish) == (Finish.MAX_TOKENS, Finish.MAX_TOKENS)


def test_eos_wins_over_a_stop_sequence_and_that_over_the_limit(prompted: Engine) -> None:
    ids = _greedy_ids(prompted, 1)
    ends: dict[str, Any] = {"eos": {ids[0]}, "stop_token_sequences": ((ids[0],),)}
    assert start_generate(prompted, 30, 1, **ends)[0].future.result(TIMEOUT).finish is Finish.EOS
    prompted.close("s", 1).result(TIMEOUT)
    open_session(prompted)
    start_append(prompted, 0, 30).future.result(TIMEOUT)
    del ends["eos"]
    assert start_generate(prompted, 30, 1, **ends)[0].future.result(TIMEOUT).finish is Finish.STOP_SEQUENCE


def test_a_generate_remembers_no_more_than_it_needs(prompted: Engine) -> None:
    plain, _ = start_generate(prompted, 30, 60)
    plain.future.result(TIMEOUT)
    assert (list(plain.counts), len(plain._last_tokens)) == ([], 1)
    waiting, tokens = start_generate(
        prompted, 30, 60, session_id="free", stop_token_sequences=((1, 2, 3), (9,)), presence_penalty=0.5
    )
    waiting.future.result(TIMEOUT)
    assert list(waiting._last_tokens) == tokens.ids[-3:]
    assert waiting.counts == {token_id: tokens.ids.count(token_id) for token_id in tokens.ids}


def test_a_penalty_keeps_a_generate_from_what_it_has_said(prompted: Engine) -> None:
    ids = _greedy_ids(prompted, 40)
    assert len(set(ids)) < 40
    generate, tokens = start_generate(prompted, 30, 40, presence_penalty=2.0, frequency_penalty=2.0)
    generate.future.result(TIMEOUT)
    assert tokens.ids[0] == ids[0]
    assert len(set(tokens.ids)) > len(set(ids))


def test_a_bias_forces_a_token(prompted: Engine) -> None:
    generate, tokens = start_generate(prompted, 30, 3, logit_bias=((77, 100.0),))
    generate.future.result(TIMEOUT)
    assert tokens.ids == [77, 77, 77]


def test_log_probabilities_come_with_each_token(prompted: Engine) -> None:
    _, silent = start_generate(prompted, 30, 3, session_id="free")
    generate, tokens = start_generate(prompted, 30, 3, num_top_logprobs=4)
    generate.future.result(TIMEOUT)
    for token_id, detail in zip(tokens.ids, tokens.details, strict=True):
        assert detail is not None
        assert len(detail.top) == 4
        assert detail.top[0] == (token_id, detail.logprob)  # greedy takes the likeliest
        assert sum(math.exp(logprob) for _, logprob in detail.top) < 1.0
    start_append(prompted, 33, 1).future.result(TIMEOUT)
    generate, tokens = start_generate(prompted, 34, 1, num_top_logprobs=0)
    generate.future.result(TIMEOUT)
    (detail,) = tokens.details
    assert detail is not None
    assert detail.logprob < 0
    assert detail.top == ()
    assert set(silent.details) == {None}


def test_a_session_that_refuses_to_forget_is_full_before_it_changes(engine: Engine) -> None:
    opened = open_session(engine, sink=2, window=30, refuses_overflow=True)
    assert (opened.sink, opened.window) == (2, 30)
    start_append(engine, 0, 20).future.result(TIMEOUT)
    error = error_of(start_append(engine, 20, 13).future)
    assert isinstance(error, HistoryFull)
    assert error.metadata == {"room": "12"}
    assert live_state(engine) == state_of(20)
    assert start_append(engine, 20, 12).future.result(TIMEOUT).lane == state_of(32)


def test_a_full_lane_ends_a_generate_that_may_not_forget(engine: Engine) -> None:
    open_session(engine, sink=2, window=30, refuses_overflow=True)
    start_append(engine, 0, 20).future.result(TIMEOUT)
    generate, tokens = start_generate(engine, 20, 100)
    done = generate.future.result(TIMEOUT)
    assert (done.finish, done.num_generated, done.num_evicted) == (Finish.TRUNCATED, 12, 0)
    assert len(tokens.ids) == 12
    assert done.lane == state_of(32)
    full = start_generate(engine, 32, 100)[0].future.result(TIMEOUT)
    assert (full.finish, full.num_generated, full.lane) == (Finish.TRUNCATED, 0, state_of(32))


def test_the_last_token_of_both_limits_counts_for_max_tokens(engine: Engine) -> None:
    open_session(engine, sink=2, window=30, refuses_overflow=True)
    start_append(engine, 0, 20).future.result(TIMEOUT)
    assert start_generate(engine, 20, 12)[0].future.result(TIMEOUT).finish is Finish.MAX_TOKENS


def test_a_session_keeps_what_it_asked_for(engine: Engine) -> None:
    opened = open_session(engine, pin=10, window=20)
    assert opened == OpenLane(state_of(0), 10, 20)
    state = start_append(engine, 0, 100).future.result(TIMEOUT).lane
    assert state == LaneState(100, 30 * BYTES, (range(10), range(80, 100)))
    assert isinstance(error_of(engine.open("more", 1, SessionOptions(pin=68))), InvalidField)


@pytest.mark.parametrize("options", [{}, {"sink": 2, "window": 30, "refuses_overflow": True}])
def test_a_session_ends_with_the_answer_that_closes_it(engine: Engine, options: dict[str, Any]) -> None:
    """However that ends by itself. The lane is free before its caller is told."""
    open_session(engine, **options)
    start_append(engine, 0, 30).future.result(TIMEOUT)
    generate, tokens = start_generate(engine, 30, 40, closes=True)
    num_in_use: list[int] = []
    generate.future.add_done_callback(lambda _: num_in_use.append(engine.lanes.totals().num_lanes_in_use))
    result = generate.future.result(TIMEOUT)
    assert result.finish is (Finish.TRUNCATED if options else Finish.MAX_TOKENS)
    assert (result.is_closed, result.lane.history_length) == (True, 30 + len(tokens.ids))
    assert isinstance(error_of(engine.close("s", 1)), SessionNotFound)
    assert num_in_use == [0]


def test_an_answer_that_is_stopped_closes_nothing(engine: Engine) -> None:
    open_session(engine)
    start_append(engine, 0, 30).future.result(TIMEOUT)
    generate, tokens = start_generate(engine, 30, 100_000, closes=True)
    assert tokens.enough.wait(TIMEOUT)
    stopped = engine.stop_operation("s", 1, 30).result(TIMEOUT)
    assert isinstance(error_of(generate.future), OperationStopped)
    assert engine.close("s", 1).result(TIMEOUT) == stopped.state.history_length
