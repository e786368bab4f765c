"""Forks: a copied lane is its source to the bit, and from there on neither knows of the other."""

import numpy as np
import pytest

from kakeya_worker.conformance.tools.driving import Session, open_session
from kakeya_worker.conformance.tools.measure import agree
from kakeya_worker.conformance.tools.subject import Subject
from kakeya_worker.engine.seams.geometry import LaneGeometry

GEOMETRY = LaneGeometry(sink=4, window=40, chunk=32)
SOURCE, FORK, PREFILLED, NUM_LANES = 2, 0, 1, 3
_each_length = pytest.mark.parametrize("num_tokens", [30, 150], ids=lambda number: f"{number}-tokens")


def prepared(subject: Subject, num_tokens: int) -> Session:
    """A source, in a slab in which the lane of the fork was another session's before."""
    verifier = subject.verifier(GEOMETRY, NUM_LANES)
    open_session(verifier, GEOMETRY, FORK).append(subject.variant.history(60, 1))
    source = open_session(verifier, GEOMETRY, SOURCE)
    source.append(subject.variant.history(num_tokens))
    return source


@_each_length
def test_a_fork_is_its_source_to_the_bit(subject: Subject, num_tokens: int) -> None:
    """In every mode: a copy has no tolerance, and equal lanes alone in a step are equal work."""
    source = prepared(subject, num_tokens)
    fork = source.fork(FORK)
    np.testing.assert_array_equal(fork.logits(), source.logits())
    for token_ids in (subject.variant.history(100, 2), subject.variant.history(3, 3)):
        assert fork.append(token_ids).tobytes() == source.append(token_ids).tobytes()


@_each_length
def test_fork_and_source_go_on_for_themselves(subject: Subject, num_tokens: int) -> None:
    """Side by side in every step, each as a session that was prefilled with all of its own tokens."""
    source = prepared(subject, num_tokens)
    fork = source.fork(FORK)
    sessions = {2: source, 3: fork}
    for start in range(0, 70, 7):
        rows = [
            (session, session.lane.row(subject.variant.history(70, number)[start : start + 7]))
            for number, session in sessions.items()
        ]
        source.verifier.forward([row for _, row in rows])
        for session, row in rows:
            session.lane.commit(row)
    for number, session in sessions.items():
        prefilled = open_session(source.verifier, GEOMETRY, PREFILLED)
        expected = prefilled.append(subject.variant.history(num_tokens) + subject.variant.history(70, number))
        assert agree(subject.tolerance, session.logits(), expected)


def test_a_source_may_be_gone_and_its_lane_another_session_s(subject: Subject) -> None:
    source = prepared(subject, 100)
    fork = source.fork(FORK)
    expected = open_session(source.verifier, GEOMETRY, PREFILLED).append(subject.variant.history(103))
    open_session(source.verifier, GEOMETRY, SOURCE).append(subject.variant.history(80, 2))
    assert agree(subject.tolerance, fork.append(subject.variant.history(103)[100:]), expected)


def test_a_slot_that_is_not_copied_shows(subject: Subject) -> None:
    """Else the other tests would not notice one that is missing."""
    verifier = subject.verifier(GEOMETRY, NUM_LANES)
    source = open_session(verifier, GEOMETRY, SOURCE)
    source.append(subject.variant.history(30))
    verifier.copy_lane(SOURCE, FORK, source.lane.num_used_slots - 1)
    fork = Session(verifier, source.lane.fork(FORK))
    assert not np.isfinite(fork.append((1,))).any()
