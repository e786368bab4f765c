"""The engine's law: logits are a pure function of the tokens and (S, W).

Of no chunking, no company, no slack, no stale slot and no backend detail: each test compares with the reference.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from kakeya_worker.conformance.tools.checkpoints import MAX_POSITIONS
from kakeya_worker.conformance.tools.driving import open_session
from kakeya_worker.conformance.tools.measure import EXACT_MEAN_DIVERGENCE, agree, deviation, divergence
from kakeya_worker.conformance.tools.subject import Subject
from kakeya_worker.engine.seams.geometry import Booleans, Integers, LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions, SinkWindow
from kakeya_worker.engine.seams.row import Row

GEOMETRY = LaneGeometry(sink=4, window=40, chunk=32)
NUM_TOKENS = MAX_POSITIONS + 32  # 12 x (S + W)


def worst_deviation(
    subject: Subject,
    *,
    append_size: int,
    geometry: LaneGeometry = GEOMETRY,
    options: SessionOptions | None = None,
    num_tokens: int = NUM_TOKENS,
) -> float:
    """Over the ends of appends of one size, through a whole history."""
    session = open_session(subject.verifier(geometry, num_lanes=2), geometry, 1, options)
    history = subject.variant.history(num_tokens)
    expected = subject.law(history, session.lane.retention.sink, session.lane.retention.window)
    worst = 0.0
    for start in range(0, num_tokens, append_size):
        logits = session.append(history[start : start + append_size])
        worst = max(worst, deviation(subject.tolerance, logits, expected[session.lane.length - 1]))
    return worst


@pytest.mark.parametrize("append_size", [1, 7, NUM_TOKENS])
def test_logits_do_not_depend_on_how_tokens_were_appended(float32: Subject, append_size: int) -> None:
    assert worst_deviation(float32, append_size=append_size) <= 1


@pytest.mark.parametrize("append_size", [7, NUM_TOKENS])
def test_bfloat16_stays_close_to_the_law(bfloat16: Subject, append_size: int) -> None:
    assert worst_deviation(bfloat16, append_size=append_size) <= 1


def test_an_exact_mode_computes_this_model(exact: Subject) -> None:
    """Its bits have tests of their own; here, that they are those of the right model."""
    session = open_session(exact.verifier(GEOMETRY), GEOMETRY)
    history = exact.variant.history(NUM_TOKENS)
    expected = exact.law(history, GEOMETRY.sink, GEOMETRY.window)
    divergences = []
    for start in range(0, NUM_TOKENS, 7):
        logits = session.append(history[start : start + 7])
        divergences.append(divergence(logits, expected[session.lane.length - 1]))
    assert np.mean(divergences) <= EXACT_MEAN_DIVERGENCE


@pytest.mark.parametrize(("sink", "window"), [(0, 16), (1, 1), (16, 47)])
def test_other_shapes_of_the_window(float32: Subject, sink: int, window: int) -> None:
    assert worst_deviation(float32, append_size=33, geometry=LaneGeometry(sink, window, 32), num_tokens=200) <= 1


@pytest.mark.heavy
def test_the_window_may_be_all_of_the_positions(float32: Subject) -> None:
    assert worst_deviation(float32, append_size=50, geometry=LaneGeometry(4, MAX_POSITIONS - 4, 32)) <= 1


@pytest.mark.parametrize("chunk", [1, 16, 128])
def test_the_slack_of_the_ring_does_not_matter(float32: Subject, chunk: int) -> None:
    geometry = LaneGeometry(GEOMETRY.sink, GEOMETRY.window, chunk)
    assert worst_deviation(float32, append_size=150, geometry=geometry, num_tokens=300) <= 1


@pytest.mark.parametrize(
    "options",
    [
        SessionOptions(sink=2, window=17),
        SessionOptions(sink=0),
        SessionOptions(pin=20),
        SessionOptions(sink=43, window=1),
    ],
    ids=["less", "no sinks", "pinned prompt", "nearly all sinks"],
)
def test_a_session_divides_its_lane_as_it_likes(float32: Subject, options: SessionOptions) -> None:
    assert worst_deviation(float32, append_size=9, options=options, num_tokens=200) <= 1


def test_sessions_of_one_step_do_not_see_each_other(float32: Subject) -> None:
    """Lanes of different lengths, shapes and phases (prefill beside decode) share every step."""
    options = [
        SessionOptions(),
        SessionOptions(sink=0, window=44),
        SessionOptions(sink=2, window=17),
        SessionOptions(pin=9),
    ]
    sizes = [32, 1, 7, 3]
    histories = [float32.variant.history(160, number) for number in range(4)]
    verifier = float32.verifier(GEOMETRY, num_lanes=4)
    sessions = [open_session(verifier, GEOMETRY, 3 - number, option) for number, option in enumerate(options)]
    for _ in range(50):
        running = [
            (session, session.lane.row(history[session.lane.length : session.lane.length + size]))
            for session, history, size in zip(sessions, histories, sizes, strict=True)
            if session.lane.length < len(history)
        ]
        verifier.forward([row for _, row in running])
        for session, row in running:
            session.lane.commit(row)
    together = verifier.logits([session.lane.index for session in sessions])
    for session, history, logits in zip(sessions, histories, together, strict=True):
        retention = session.lane.retention
        alone = float32.law(history[: session.lane.length], retention.sink, retention.window)[-1]
        assert deviation("float32", logits, alone) <= 1


@dataclass(frozen=True)
class _Late(SinkWindow):
    """A window over a history that begins late."""

    beginning: int = 0

    def recent(self, start: int, end: int) -> range:
        return range(max(self.beginning, start - self.window + 1), end)

    def visible(self, queries: Integers, keys: Integers) -> Booleans:
        return super().visible(queries, keys) & (keys >= self.beginning)


@pytest.mark.parametrize("beginning", [16 * 64, 10**6, 10**9])
def test_far_down_a_session_angles_are_as_good_as_at_its_start(float32: Subject, beginning: int) -> None:
    """Without sinks only distances count: a session that begins at any index says the same.

    Angles in float32 would be off by 1 % at a million tokens.
    """
    geometry = LaneGeometry(sink=0, window=40, chunk=32)
    retention = _Late(0, 40, geometry.num_ring_slots(40), beginning)
    verifier = float32.verifier(geometry)
    history = float32.variant.history(200)
    expected = float32.law(history, 0, 40)
    for start in range(0, len(history), 20):
        verifier.forward([Row(0, beginning + start, history[start : start + 20], retention)])
        assert deviation("float32", verifier.logits([0])[0], expected[start + 19]) <= 1


def test_rows_that_are_not_committed_leave_no_trace(subject: Subject) -> None:
    """A rejected draft or a cancelled step is overwritten; nothing has to be undone."""
    history = subject.variant.history(100)
    plain = open_session(subject.verifier(GEOMETRY, num_lanes=2), GEOMETRY, 0)
    drafting = open_session(plain.verifier, GEOMETRY, 1)
    for start in range(0, len(history), 5):
        drafting.verifier.forward([drafting.lane.row(history[32:0:-1])])  # never committed
        expected = plain.append(history[start : start + 5])
        logits = drafting.append(history[start : start + 5])
        assert agree(subject.tolerance, logits, expected)


def test_logits_may_be_asked_for_in_any_order_and_again(subject: Subject) -> None:
    verifier = subject.verifier(GEOMETRY, num_lanes=3)
    sessions = [open_session(verifier, GEOMETRY, lane) for lane in range(3)]
    alone = [session.append(subject.variant.history(50, session.lane.index)) for session in sessions]
    for session, logits in zip(sessions, alone, strict=True):
        np.testing.assert_array_equal(session.logits(), logits)
    together = verifier.logits([2, 0])
    for logits, lane in zip(together, (2, 0), strict=True):
        assert agree(subject.tolerance, logits, alone[lane])


def test_poison_shows_where_a_stale_slot_is_read(subject: Subject) -> None:
    """Else the other tests would not notice a stale read."""
    session = open_session(subject.verifier(GEOMETRY), GEOMETRY)
    session.lane.length = 40  # as if 40 tokens had been written
    session.verifier.forward([session.lane.row((1,))])
    assert not np.isfinite(session.logits()).any()
