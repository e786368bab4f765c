"""The logits after each token of a row that is scored: those of one token after the other."""

from collections.abc import Iterator

import pytest

from kakeya_worker.conformance.tools.driving import Logits, Session, open_session
from kakeya_worker.conformance.tools.measure import agree, deviation
from kakeya_worker.conformance.tools.subject import Subject
from kakeya_worker.engine.seams.geometry import LaneGeometry

GEOMETRY = LaneGeometry(sink=4, window=28, chunk=16)
NUM_TOKENS = 3 * GEOMETRY.capacity  # so that most rows forget something
ROWS = (1, 16, 5, 2, 15)  # tokens of one after the other, and so on


def _scored(
    subject: Subject, session: Session, token_ids: tuple[int, ...], company: Session | None = None
) -> Iterator[Logits]:
    """After each token, appended in rows of several lengths; the company has a row before in the step.

    The last of a row are those that the lane's next token would be chosen from.
    """
    start = 0
    while start < len(token_ids):
        size = ROWS[session.lane.length % len(ROWS)]
        row = session.lane.row(token_ids[start : start + size], is_scored=True)
        rows = [(session, row)]
        if company is not None:
            beside = company.lane.row(token_ids[start : start + 1])
            rows = [(company, beside), (session, row)]
        session.verifier.forward([each for _, each in rows])
        logits = session.verifier.scored_logits([row.lane])
        assert agree(subject.tolerance, logits[-1], session.logits())
        yield from logits
        for each, its_row in rows:
            each.lane.commit(its_row)
        start += len(row.token_ids)


@pytest.mark.parametrize("with_company", [False, True], ids=["alone", "in-company"])
def test_they_are_those_of_one_token_after_the_other(subject: Subject, with_company: bool) -> None:
    verifier = subject.verifier(GEOMETRY, num_lanes=3)
    history = subject.variant.history(NUM_TOKENS)
    alone = open_session(verifier, GEOMETRY, 0)
    expected = [alone.append((token_id,)) for token_id in history]
    company = open_session(verifier, GEOMETRY, 1) if with_company else None
    found = list(_scored(subject, open_session(verifier, GEOMETRY, 2), history, company))
    assert len(found) == NUM_TOKENS
    assert [agree(subject.tolerance, *pair) for pair in zip(found, expected, strict=True)] == [True] * NUM_TOKENS


def test_they_are_those_of_the_law(float32: Subject) -> None:
    verifier = float32.verifier(GEOMETRY)
    history = float32.variant.history(NUM_TOKENS)
    expected = float32.law(history, GEOMETRY.sink, GEOMETRY.window)
    found = _scored(float32, open_session(verifier, GEOMETRY), history)
    assert max(deviation("float32", *pair) for pair in zip(found, expected, strict=True)) <= 1


def test_several_rows_of_a_step_may_be_scored(subject: Subject) -> None:
    verifier = subject.verifier(GEOMETRY, num_lanes=3)
    histories = [subject.variant.history(9), subject.variant.history(12)[3:], subject.variant.history(5)]
    sessions = [open_session(verifier, GEOMETRY, lane) for lane in range(3)]
    rows = [
        session.lane.row(tuple(history), is_scored=lane != 2)
        for lane, (session, history) in enumerate(zip(sessions, histories, strict=True))
    ]
    verifier.forward(rows)
    found = [verifier.scored_logits([lane]) for lane in (1, 0)]
    together = verifier.scored_logits([1, 0])
    for lane, logits, again in zip((1, 0), found, (together[:9], together[9:]), strict=True):
        assert agree(subject.tolerance, again[0], logits[0])
        assert agree(subject.tolerance, again[-1], logits[-1])
        alone = open_session(verifier, GEOMETRY, 2)
        expected = [alone.append((token_id,)) for token_id in histories[lane]]
        assert logits.shape == (len(expected), verifier.facts.vocab_size)
        assert all(agree(subject.tolerance, *pair) for pair in zip(logits, expected, strict=True))


@pytest.mark.parametrize("num_right", [1, 4, 8])
def test_a_lane_is_shortened_to_the_tokens_that_were_right(subject: Subject, num_right: int) -> None:
    """It then ends with them as if the row had ended there, whatever it goes on with."""
    verifier = subject.verifier(GEOMETRY, num_lanes=2)
    history = subject.variant.history(NUM_TOKENS)
    plain, drafting = (open_session(verifier, GEOMETRY, lane) for lane in range(2))
    start = 0
    while start + 9 < NUM_TOKENS:
        right = history[start : start + num_right]
        row = drafting.lane.row((*right, *history[1 : 10 - num_right]), is_scored=True)
        verifier.forward([row])
        verifier.shorten(row.lane, num_right)
        drafting.lane.commit(row.first(num_right))
        assert agree(subject.tolerance, drafting.logits(), plain.append(right))
        start += num_right
    assert agree(subject.tolerance, drafting.append(history[:7]), plain.append(history[:7]))
