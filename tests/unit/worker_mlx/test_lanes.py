"""Lanes of the MLX backend: their bytes, their memory, and threads that read and write them beside steps."""

import gc
import threading
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from kakeya_worker.conformance.tools.driving import Session, open_session
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.mlx_backend import MlxVerifier
from kakeya_worker.mlx_backend.decoder import Mlp

GEOMETRY = LaneGeometry(sink=4, window=60, chunk=32)
NUM_LANES = 3


@pytest.fixture
def session(verifier: MlxVerifier) -> Session:
    """In the first lane of a poisoned slab."""
    verifier.allocate(GEOMETRY, NUM_LANES)
    verifier.poison()
    return open_session(verifier, GEOMETRY)


def on_another_thread(work: Callable[[], Any]) -> Any:
    """What it returns there."""
    returned: list[Any] = []
    thread = threading.Thread(target=lambda: returned.append(work()))
    thread.start()
    thread.join()
    return returned[0]


def addresses(verifier: MlxVerifier, lane: int = 0) -> list[int]:
    """Where a lane's K and V lie."""
    raw = verifier.slab.raw_lane(lane)
    return [array.ctypes.data for array in (*raw.keys, *raw.values)]


def test_the_slab_is_what_the_bytes_say(session: Session, verifier: MlxVerifier) -> None:
    lane = verifier.slab.lanes[0]
    lane_bytes = sum(array.nbytes for array in (*lane.keys, *lane.values))
    assert lane_bytes == GEOMETRY.num_slots * verifier.facts.kv_bytes_per_token
    assert {array.dtype for array in (*lane.keys, *lane.values)} == {mx.float32}


def test_steps_write_in_place_and_take_no_more_memory(session: Session, verifier: MlxVerifier) -> None:
    session.append(range(100))
    gc.collect()  # what other tests have left is given back in the middle otherwise
    before, active_bytes = addresses(verifier), mx.get_active_memory()
    for token in range(200):
        session.append((token,))
    assert addresses(verifier) == before
    assert mx.get_active_memory() == active_bytes


def test_what_was_made_on_one_thread_runs_on_others(session: Session) -> None:
    expected = [session.append(range(50)), session.append((7,))]
    again = open_session(session.verifier, GEOMETRY, 1)
    logits = [on_another_thread(lambda: again.append(range(50))), on_another_thread(lambda: again.append((7,)))]
    np.testing.assert_array_equal(logits, expected)


def test_lanes_are_read_and_written_beside_steps_of_others(session: Session, verifier: MlxVerifier) -> None:
    other = open_session(verifier, GEOMETRY, 1)
    other.append(range(64))
    slots = other.lane.retention.slots(np.arange(64))
    contents = verifier.read_lane(1, slots)
    ended = threading.Event()

    def copy_to_and_fro() -> int:
        num_copies = 0
        while not ended.is_set() or num_copies < 10:
            verifier.write_lane(2, slots, verifier.read_lane(1, slots))
            num_copies += 1
        return num_copies

    num_copies: list[int] = []
    thread = threading.Thread(target=lambda: num_copies.append(copy_to_and_fro()))
    thread.start()
    beside = [session.append((token,)) for token in range(80)]
    ended.set()
    thread.join()
    assert num_copies[0] >= 10
    alone = open_session(verifier, GEOMETRY)
    np.testing.assert_array_equal(beside, [alone.append((token,)) for token in range(80)])
    for lane in (1, 2):
        read = verifier.read_lane(lane, slots)
        np.testing.assert_array_equal(read.keys, contents.keys)
        np.testing.assert_array_equal(read.values, contents.values)
        np.testing.assert_array_equal(read.final_hidden, contents.final_hidden)


def test_contents_that_do_not_fit_are_refused_and_nothing_is_written(session: Session, verifier: MlxVerifier) -> None:
    expected = session.append(range(64))
    slots = np.arange(64)
    contents = verifier.read_lane(0, slots)
    with pytest.raises(ValueError, match="is not"):
        verifier.write_lane(0, slots[:32], contents)
    np.testing.assert_array_equal(session.logits(), expected)


def test_a_step_that_fails_half_way_changes_nothing(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    history = tuple(range(150))
    logits = session.append(history[:100])
    whole, num_calls = Mlp.__call__, 0

    def failing(self: Mlp, x: mx.array) -> mx.array:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 3:
            raise RuntimeError("half-way")
        return whole(self, x)

    for _ in range(3):
        num_calls = 0
        with monkeypatch.context() as patch:
            patch.setattr(Mlp, "__call__", failing)
            with pytest.raises(RuntimeError, match="half-way"):
                session.step(history[132:100:-1])
        np.testing.assert_array_equal(session.logits(), logits)
    went_on = session.append(history[100:])
    undisturbed = open_session(session.verifier, GEOMETRY, 1)
    undisturbed.append(history[:100])
    np.testing.assert_array_equal(went_on, undisturbed.append(history[100:]))


def test_four_sessions_in_one_step_are_each_as_alone(verifier: MlxVerifier) -> None:
    verifier.allocate(GEOMETRY, 8)
    verifier.poison()
    sessions = [open_session(verifier, GEOMETRY, lane) for lane in range(4)]
    histories = [tuple((7 * number + 3 * index) % 1000 for index in range(150)) for number in range(4)]
    for start in range(0, 150, 5):
        rows = [
            session.lane.row(tuple(history[start : start + 5]))
            for session, history in zip(sessions, histories, strict=True)
        ]
        verifier.forward(rows)
        for session, row in zip(sessions, rows, strict=True):
            session.lane.commit(row)
    together = verifier.logits(range(4))
    for number, history in enumerate(histories):
        alone = open_session(verifier, GEOMETRY, 4 + number).append(history)
        assert np.abs(together[number] - alone).max() <= 1e-4 * np.abs(alone).max()
