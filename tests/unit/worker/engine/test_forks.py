"""Forks on the engine, with a real model: what the new session has at once, and what is left when there is none."""

import numpy as np
import pytest
import torch

from kakeya_shared.errors.tree import (
    Draining,
    HistoryFull,
    HistoryLengthMismatch,
    Internal,
    NoCapacity,
    OperationRunning,
    SessionNotFound,
    StaleEpoch,
)
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.lane_state import ForkSource, OpenLane
from kakeya_worker.torch_backend import TorchVerifier
from tests.unit.worker.engine_calls import (
    NUM_LANES,
    SINK,
    TIMEOUT,
    WINDOW,
    error_of,
    live_state,
    open_session,
    start_append,
    start_generate,
    state_of,
)

OPTIONS = {"temperature": 1.0, "seed": 7}


def fork(engine: Engine, length: int, session_id: str = "f", source: str = "s") -> OpenLane:
    return engine.fork(session_id, 1, ForkSource(source, 1, length), "acme").result(TIMEOUT)


def prepare(engine: Engine, num_tokens: int, session_id: str = "s") -> None:
    open_session(engine, session_id)
    start_append(engine, 0, num_tokens, session_id).future.result(TIMEOUT)


def generated(engine: Engine, length: int, session_id: str) -> list[int]:
    generate, tokens = start_generate(engine, length, 12, session_id=session_id, **OPTIONS)
    generate.future.result(TIMEOUT)
    return tokens.ids


@pytest.mark.parametrize("length", [0, 20, 200])
def test_a_fork_has_the_history_of_its_source_at_once(engine: Engine, length: int) -> None:
    prepare(engine, length)
    assert fork(engine, length) == OpenLane(state_of(length), SINK, WINDOW)
    assert live_state(engine, "f") == live_state(engine, "s") == state_of(length)
    assert engine.lanes.find("f", 1).tenant == "acme"


@pytest.mark.parametrize("length", [20, 200])
def test_fork_source_and_a_prefilled_session_generate_the_same(
    engine: Engine, verifier: TorchVerifier, length: int
) -> None:
    verifier.poison()
    prepare(engine, length)
    fork(engine, length)
    prepare(engine, length, "p")
    first, *others = (generated(engine, length, session_id) for session_id in ("f", "s", "p"))
    assert len(set(first)) > 6
    assert others == [first, first]


def test_the_prefill_of_the_source_is_not_the_fork_s(engine: Engine) -> None:
    prepare(engine, 40)
    fork(engine, 40)
    done = start_generate(engine, 40, 1, session_id="f")[0].future.result(TIMEOUT)
    assert done.prefill_seconds == 0
    assert start_generate(engine, 40, 1)[0].future.result(TIMEOUT).prefill_seconds > 0


def test_a_fork_keeps_what_its_source_keeps(engine: Engine) -> None:
    open_session(engine, sink=2, window=9, refuses_overflow=True)
    start_append(engine, 0, 8).future.result(TIMEOUT)
    opened = fork(engine, 8)
    assert (opened.sink, opened.window) == (2, 9)
    error = error_of(start_append(engine, 8, 4, "f").future)
    assert isinstance(error, HistoryFull)
    assert error.metadata == {"room": "3"}


def test_a_fork_that_is_repeated_changes_nothing(engine: Engine) -> None:
    prepare(engine, 30)
    fork(engine, 30)
    start_append(engine, 30, 5, "f").future.result(TIMEOUT)
    expected = generated(engine, 35, "f")
    engine.close("s", 1).result(TIMEOUT)
    assert fork(engine, 30).state == state_of(47)
    prepare(engine, 30)
    start_append(engine, 30, 5).future.result(TIMEOUT)
    assert generated(engine, 35, "s") == expected
    again = engine.fork("f", 0, ForkSource("s", 1, 47))
    assert isinstance(error_of(again), StaleEpoch)


def test_what_is_no_source_leaves_no_lane(engine: Engine) -> None:
    prepare(engine, 30)
    refused = {
        ForkSource("nobody", 1, 30): SessionNotFound,
        ForkSource("s", 2, 30): StaleEpoch,
        ForkSource("s", 1, 29): HistoryLengthMismatch,
    }
    for source, kind in refused.items():
        assert isinstance(error_of(engine.fork("f", 1, source)), kind)
    running, tokens = start_generate(engine, 30, 10**6)
    assert tokens.enough.wait(TIMEOUT)
    assert isinstance(error_of(engine.fork("f", 1, ForkSource("s", 1, 30))), OperationRunning)
    engine.cancel(running)
    assert engine.lanes.totals().num_lanes_in_use == 1


def test_forks_need_lanes_as_all_do(engine: Engine) -> None:
    prepare(engine, 30)
    for number in range(1, NUM_LANES):
        fork(engine, 30, f"f{number}")
    assert isinstance(error_of(engine.fork("one-more", 1, ForkSource("s", 1, 30))), NoCapacity)
    engine.close("s", 1).result(TIMEOUT)
    fork(engine, 30, "one-more", source="f1")


def test_a_copy_that_fails_leaves_no_lane(
    engine: Engine, verifier: TorchVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: int, target: int, num_slots: int) -> None:
        raise RuntimeError("no memory")

    prepare(engine, 30)
    with monkeypatch.context() as patched:
        patched.setattr(verifier, "copy_lane", fail)
        assert isinstance(error_of(engine.fork("f", 1, ForkSource("s", 1, 30))), Internal)
    assert engine.lanes.totals().num_lanes_in_use == 1
    fork(engine, 30)


def test_no_fork_begins_while_the_worker_shuts_down(engine: Engine) -> None:
    prepare(engine, 30)
    engine.shut_down()
    assert isinstance(error_of(engine.fork("f", 1, ForkSource("s", 1, 30))), Draining)


def test_only_slots_that_were_written_are_copied(engine: Engine, verifier: TorchVerifier) -> None:
    """Else a short prefix would cost, in time and memory, what a whole lane costs."""
    slab = (*verifier.slab.keys, *verifier.slab.values)
    for tensor in slab:
        tensor[:] = 5.0
    prepare(engine, 10)
    fork(engine, 10)
    source, target = (engine.lanes.find(session_id, 1).lane for session_id in ("s", "f"))
    last = int(source.retention.slots(np.array(9)))
    assert last < 2 * SINK + 10
    for tensor in slab:
        assert torch.equal(tensor[target.index, :, : last + 1], tensor[source.index, :, : last + 1])
        assert bool((tensor[target.index, :, last] != 5.0).any())
        assert bool((tensor[target.index, :, last + 1 :] == 5.0).all())
