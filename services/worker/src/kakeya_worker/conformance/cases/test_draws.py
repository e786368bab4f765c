"""A backend that draws tokens itself draws those that the engine draws."""

import numpy as np
import pytest

from kakeya_worker.conformance.tools.subject import Subject
from kakeya_worker.engine.sampling.gumbel import Survivors, draw
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.verifier import draw_of

_VOCAB = 10_000


@pytest.mark.parametrize("spread", [0.01, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("part", [None, 0.5, 0.001])
def test_they_are_those_of_the_engine(subject: Subject, spread: float, part: float | None) -> None:
    """Of all ids and of some, with scores that are alike and that are not, some of which are out."""
    own_draw = draw_of(subject.verifier(LaneGeometry(sink=4, window=28, chunk=16), num_lanes=3))
    random = np.random.default_rng(4)
    drawn = set()
    for number in range(40):
        scores = random.normal(0.0, spread, _VOCAB)
        scores[random.random(_VOCAB) < 0.2] = -np.inf
        token_ids = None if part is None else np.flatnonzero((random.random(_VOCAB) < part) & (scores > -np.inf))
        seed, history_index = int(random.integers(2**63)) * 2 + number % 2, int(random.integers(2 ** (number + 1)))
        token_id = own_draw(Survivors(scores, token_ids), seed, history_index)
        assert token_id == draw(Survivors(scores, token_ids), seed, history_index)
        drawn.add(token_id)
    assert len(drawn) > 5
