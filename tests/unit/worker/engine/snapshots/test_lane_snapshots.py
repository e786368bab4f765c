"""Lanes that are copied while the engine goes on: what waits for that, what does not, and what is lost by nobody."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from kakeya_shared.errors.tree import (
    Draining,
    InvalidField,
    NoCapacity,
    OperationRunning,
    OperationStopped,
    SessionNotFound,
    SnapshotRefused,
    StaleEpoch,
)
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.lane_state import OpenLane
from kakeya_worker.engine.seams.retention import SessionOptions
from kakeya_worker.engine.snapshots.snapshot import TakenSnapshot
from kakeya_worker.snapshots import snapshot_file
from kakeya_worker.torch_backend import TorchVerifier
from tests.unit.worker.engine_calls import (
    NUM_LANES,
    SINK,
    TIMEOUT,
    WINDOW,
    error_of,
    open_session,
    start_append,
    start_generate,
    state_of,
)

LENGTH = 100


class Held:
    """A method of a backend that begins, and goes on when it is told to; a copy that takes long cannot be had
    otherwise.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.begun, self._released = Event(), Event()

    def __call__(self, *arguments: Any) -> Any:
        self.begun.set()
        assert self._released.wait(TIMEOUT)
        return self._method(*arguments)

    def release(self) -> None:
        self._released.set()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


@pytest.fixture
def reading(verifier: TorchVerifier, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held = Held(verifier.read_lane)
    monkeypatch.setattr(verifier, "read_lane", held)
    for session_id in ("s", "t"):
        open_session(engine, session_id)
        start_append(engine, 0, LENGTH, session_id).future.result(TIMEOUT)
    yield held
    held.release()


@pytest.fixture
def taken(engine: Engine, reading: Held, threads: ThreadPoolExecutor) -> "Future[TakenSnapshot]":
    """On its way: it is being copied."""
    taken = threads.submit(engine.take_snapshot, "s", 1)
    assert reading.begun.wait(TIMEOUT)
    return taken


def content(snapshot: TakenSnapshot) -> bytes:
    return snapshot_file.encode(snapshot)


def waits(future: "Future[Any]") -> bool:
    """A step of another session was done meanwhile, and this is not: commands come in their order."""
    return not future.done()


def step_of_another(engine: Engine, length: int = LENGTH) -> None:
    start_append(engine, length, 40, "t").future.result(TIMEOUT)


# Taking


def test_others_go_on_while_a_lane_is_copied(engine: Engine, reading: Held, taken: "Future[TakenSnapshot]") -> None:
    step_of_another(engine)
    reading.release()
    assert taken.result(TIMEOUT).length == LENGTH


def test_what_would_write_to_the_lane_waits(engine: Engine, reading: Held, taken: "Future[TakenSnapshot]") -> None:
    append = start_append(engine, LENGTH, 40)
    step_of_another(engine)
    assert waits(append.future)
    reading.release()
    assert append.future.result(TIMEOUT).lane == state_of(LENGTH + 40)
    assert taken.result(TIMEOUT).length == LENGTH
    assert content(taken.result()) != content(engine.take_snapshot("s", 1))


def test_what_waits_comes_in_its_order(engine: Engine, reading: Held, taken: "Future[TakenSnapshot]") -> None:
    """A stop that came after a generate is not done before it, which would then go on for ever."""
    generate, tokens = start_generate(engine, LENGTH, 10_000, number=1)
    second = start_append(engine, LENGTH, 1, number=1)
    stop = engine.stop_operation("s", 1, operation_number=1)
    step_of_another(engine)
    assert waits(generate.future)
    assert waits(stop)
    reading.release()
    assert isinstance(error_of(second.future), OperationRunning)
    assert stop.result(TIMEOUT).state.history_length == LENGTH + len(tokens.ids)
    assert isinstance(error_of(generate.future), OperationStopped)


def test_an_operation_that_is_cancelled_while_it_waits_ends(
    engine: Engine, reading: Held, taken: "Future[TakenSnapshot]"
) -> None:
    generate, _ = start_generate(engine, LENGTH, 10_000)
    engine.cancel(generate)
    reading.release()
    assert isinstance(error_of(generate.future), OperationStopped)


def test_a_higher_operation_that_waits_too_fences_the_lower(
    engine: Engine, reading: Held, taken: "Future[TakenSnapshot]"
) -> None:
    lower, higher = (start_append(engine, LENGTH, 1, number=number) for number in (1, 2))
    reading.release()
    assert isinstance(error_of(lower.future), StaleEpoch)
    assert higher.future.result(TIMEOUT).lane == state_of(LENGTH + 1)


def test_a_rewind_waits(engine: Engine, reading: Held, threads: ThreadPoolExecutor) -> None:
    open_session(engine, "short")
    start_append(engine, 0, 20, "short").future.result(TIMEOUT)
    taken = threads.submit(engine.take_snapshot, "short", 1)
    assert reading.begun.wait(TIMEOUT)
    rewound = engine.rewind("short", 1, 20, 10)
    step_of_another(engine)
    assert waits(rewound)
    reading.release()
    assert rewound.result(TIMEOUT).history_length == 10
    assert taken.result(TIMEOUT).length == 20


def test_a_stop_of_nothing_waits_for_nothing(engine: Engine, reading: Held, taken: "Future[TakenSnapshot]") -> None:
    assert engine.stop_operation("s", 1).result(TIMEOUT).state == state_of(LENGTH)
    reading.release()


def test_two_copies_are_made_at_once(
    engine: Engine, reading: Held, taken: "Future[TakenSnapshot]", threads: ThreadPoolExecutor
) -> None:
    other = threads.submit(engine.take_snapshot, "s", 1)
    while engine.lanes.find("s", 1).num_readings < 2:
        continue
    append = start_append(engine, LENGTH, 1)
    reading.release()
    assert content(taken.result(TIMEOUT)) == content(other.result(TIMEOUT))
    assert append.future.result(TIMEOUT).lane == state_of(LENGTH + 1)


def test_a_session_that_is_closed_meanwhile_leaves_no_snapshot(
    engine: Engine, reading: Held, taken: "Future[TakenSnapshot]"
) -> None:
    """Its lane may be another's already."""
    append = start_append(engine, LENGTH, 1)
    assert engine.close("s", 1).result(TIMEOUT) == LENGTH
    open_session(engine, "another")
    reading.release()
    with pytest.raises(SessionNotFound, match="left its lane"):
        taken.result(TIMEOUT)
    assert isinstance(error_of(append.future), SessionNotFound)


def test_a_session_that_came_back_is_another(engine: Engine, reading: Held, taken: "Future[TakenSnapshot]") -> None:
    engine.open("s", 2, SessionOptions()).result(TIMEOUT)
    reading.release()
    with pytest.raises(SessionNotFound):
        taken.result(TIMEOUT)


def test_a_copy_that_fails_holds_nothing_up(engine: Engine, reading: Held, threads: ThreadPoolExecutor) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the backend is broken")

    reading._method = fail
    taken = threads.submit(engine.take_snapshot, "s", 1)
    assert reading.begun.wait(TIMEOUT)
    append = start_append(engine, LENGTH, 1)
    reading.release()
    with pytest.raises(RuntimeError, match="broken"):
        taken.result(TIMEOUT)
    assert append.future.result(TIMEOUT).lane == state_of(LENGTH + 1)


def test_an_engine_that_ends_leaves_nobody_waiting(
    engine: Engine, reading: Held, taken: "Future[TakenSnapshot]"
) -> None:
    append = start_append(engine, LENGTH, 1)
    engine.shut_down()
    assert waits(append.future)
    reading.release()
    assert taken.result(TIMEOUT).length == LENGTH
    assert isinstance(error_of(append.future), Draining)


def test_a_start_beyond_the_end_is_refused(engine: Engine, reading: Held) -> None:
    with pytest.raises(InvalidField, match="start"):
        engine.take_snapshot("s", 1, LENGTH + 1)
    assert start_append(engine, LENGTH, 1).future.result(TIMEOUT).lane == state_of(LENGTH + 1)


# Restoring


@pytest.fixture
def whole(engine: Engine) -> TakenSnapshot:
    """Of a session that is there no more."""
    open_session(engine)
    start_append(engine, 0, LENGTH).future.result(TIMEOUT)
    whole = engine.take_snapshot("s", 1)
    engine.close("s", 1).result(TIMEOUT)
    return whole


@pytest.fixture
def writing(verifier: TorchVerifier, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held = Held(verifier.write_lane)
    monkeypatch.setattr(verifier, "write_lane", held)
    open_session(engine, "t")
    yield held
    held.release()


@pytest.fixture
def restored(engine: Engine, whole: TakenSnapshot, writing: Held, threads: ThreadPoolExecutor) -> "Future[OpenLane]":
    """On its way: its lane is being written to."""
    restored = threads.submit(engine.restore, "s", 2, [whole])
    assert writing.begun.wait(TIMEOUT)
    return restored


def test_others_go_on_while_a_lane_is_restored(engine: Engine, writing: Held, restored: "Future[OpenLane]") -> None:
    step_of_another(engine, 0)
    assert "s" not in engine.lanes, "nobody may use it yet"
    writing.release()
    assert restored.result(TIMEOUT) == OpenLane(state_of(LENGTH), SINK, WINDOW)


def test_a_lane_that_is_restored_is_nobody_elses(engine: Engine, writing: Held, restored: "Future[OpenLane]") -> None:
    for number in range(NUM_LANES - 2):
        open_session(engine, f"other-{number}")
    assert isinstance(error_of(engine.open("more", 1, SessionOptions())), NoCapacity)
    writing.release()
    restored.result(TIMEOUT)


def test_the_same_session_restored_twice_at_once_has_one_lane(
    engine: Engine, whole: TakenSnapshot, writing: Held, restored: "Future[OpenLane]", threads: ThreadPoolExecutor
) -> None:
    again = threads.submit(engine.restore, "s", 2, [whole])
    writing.release()
    assert again.result(TIMEOUT) == restored.result(TIMEOUT)
    assert engine.restore("s", 2, [whole]) == restored.result()
    _only(engine, "s", "t")


def test_a_lease_that_came_meanwhile_wins(engine: Engine, writing: Held, restored: "Future[OpenLane]") -> None:
    engine.open("s", 3, SessionOptions()).result(TIMEOUT)
    writing.release()
    with pytest.raises(StaleEpoch):
        restored.result(TIMEOUT)
    assert engine.lanes.find("s", 3).lane.length == 0
    _only(engine, "s", "t")


def test_an_engine_that_is_told_to_end_meanwhile_opens_nothing(
    engine: Engine, writing: Held, restored: "Future[OpenLane]"
) -> None:
    engine.shut_down()
    writing.release()
    with pytest.raises(Draining):
        restored.result(TIMEOUT)


def test_a_lane_that_could_not_be_written_is_free_again(engine: Engine, whole: TakenSnapshot, writing: Held) -> None:
    def fail(*_: object) -> None:
        raise ValueError("of another shape")

    writing._method = fail
    writing.release()
    for _ in range(NUM_LANES):
        with pytest.raises(SnapshotRefused, match="another shape"):
            engine.restore("s", 2, [whole])
    _only(engine, "t")


def _only(engine: Engine, *session_ids: str) -> None:
    """These have lanes, and all others are free."""
    assert {report.session_id for report in engine.lanes.reports()} == set(session_ids)
    for number in range(NUM_LANES - len(session_ids)):
        open_session(engine, f"late-{number}")
    assert isinstance(error_of(engine.open("more", 1, SessionOptions())), NoCapacity)
