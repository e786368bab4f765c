"""Snapshots: a lane that was taken and restored is the same lane to the bit, wherever and however often."""

from io import BytesIO

import numpy as np
import pytest

from kakeya_worker.conformance.tools.driving import Session, open_session
from kakeya_worker.conformance.tools.measure import agree
from kakeya_worker.conformance.tools.subject import Subject
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.verifier import Verifier
from kakeya_worker.engine.snapshots import snapshot
from kakeya_worker.engine.snapshots.snapshot import Snapshot, TakenSnapshot
from kakeya_worker.snapshots import snapshot_file

GEOMETRY = LaneGeometry(sink=4, window=40, chunk=32)
OTHER = LaneGeometry(sink=4, window=40, chunk=16)
SOURCE, TARGET, NUM_LANES = 2, 0, 3
_each_length = pytest.mark.parametrize("num_tokens", [1, 30, 44, 150], ids=lambda number: f"{number}-tokens")


def through_a_file(taken: TakenSnapshot) -> Snapshot:
    return snapshot_file.opened(BytesIO(snapshot_file.encode(taken)))


def restored(subject: Subject, verifier: Verifier, *taken: Snapshot, geometry: LaneGeometry = GEOMETRY) -> Session:
    """In a lane that was another session's before."""
    open_session(verifier, geometry, TARGET).append(subject.variant.history(60, 1))
    session = open_session(verifier, geometry, TARGET)
    snapshot.restore(taken, session.lane, verifier)
    return session


@_each_length
def test_a_restored_session_goes_on_with_the_same_bits(subject: Subject, num_tokens: int) -> None:
    """In every mode: alone in a step, equal lanes are equal work."""
    source = open_session(subject.verifier(GEOMETRY, NUM_LANES), GEOMETRY, SOURCE)
    source.append(subject.variant.history(num_tokens))
    taken = through_a_file(snapshot.take(source.lane, source.verifier))
    expected = [source.logits().tobytes()]
    expected += [source.append(subject.variant.history(number, number)).tobytes() for number in (100, 3)]
    session = restored(subject, source.verifier, taken)
    assert [
        session.logits().tobytes(),
        *(session.append(subject.variant.history(number, number)).tobytes() for number in (100, 3)),
    ] == expected
    assert (session.lane.length, session.lane.history_digest) == (source.lane.length, source.lane.history_digest)


def test_layers_may_come_one_after_another(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_file, "_PART_BYTES", 1)
    source = open_session(subject.verifier(GEOMETRY, NUM_LANES), GEOMETRY, SOURCE)
    source.append(subject.variant.history(150))
    taken = snapshot.take(source.lane, source.verifier)
    num_parts = sum(1 for _ in through_a_file(taken).parts())
    assert num_parts == len(taken.contents.keys) > 1
    session = restored(subject, source.verifier, through_a_file(taken))
    again = snapshot.take(session.lane, source.verifier)
    assert snapshot_file.encode(again) == snapshot_file.encode(taken)


def test_snapshots_of_what_came_since_make_a_whole_one(subject: Subject) -> None:
    source = open_session(subject.verifier(GEOMETRY, NUM_LANES), GEOMETRY, SOURCE)
    taken, start = [], 0
    for number in (3, 20, 40, 5, 90, 1):
        source.append(subject.variant.history(number, number))
        taken.append(through_a_file(snapshot.take(source.lane, source.verifier, start)))
        start = source.lane.length
    session = restored(subject, source.verifier, *taken)
    whole, again = (snapshot.take(each.lane, source.verifier) for each in (source, session))
    assert snapshot_file.encode(again) == snapshot_file.encode(whole)
    assert session.append((1,)).tobytes() == source.append((1,)).tobytes()


@pytest.mark.parametrize("share", [0.5, 1.0, 1.5], ids=["too-little", "enough", "more"])
def test_memory_that_is_given_changes_nothing(subject: Subject, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_session(subject.verifier(GEOMETRY, NUM_LANES), GEOMETRY, SOURCE)
    source.append(subject.variant.history(150))
    monkeypatch.setattr(snapshot, "_LITTLE_BYTES", 0)
    memory = snapshot.memory_for(source.lane, source.verifier.facts.kv_bytes_per_token)
    assert memory is not None
    given = np.full(round(share * memory.nbytes), 255, np.uint8)
    plain, taken = (snapshot.take(source.lane, source.verifier, 100, each) for each in (None, given))
    assert snapshot_file.encode(taken) == snapshot_file.encode(plain)
    whole = snapshot.take(source.lane, source.verifier, 0, given)
    assert restored(subject, source.verifier, whole).append((1,)).tobytes() == source.append((1,)).tobytes()


def test_a_lane_of_another_slack_takes_it(subject: Subject) -> None:
    """Another worker's chunks may be other ones."""
    source = open_session(subject.verifier(GEOMETRY, NUM_LANES), GEOMETRY, SOURCE)
    source.append(subject.variant.history(150))
    taken = snapshot.take(source.lane, source.verifier)
    expected = source.append((1,))
    other = restored(subject, subject.verifier(OTHER, NUM_LANES), taken, geometry=OTHER)
    assert agree(subject.tolerance, other.append((1,)), expected)
