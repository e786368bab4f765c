"""Drafts are chosen as the session will choose, with what it is held to."""

from collections import Counter

import numpy as np
import pytest

from kakeya_worker.engine.sampling.sampling import Sampling, choose
from kakeya_worker.engine.speculation.choosing import GREEDY, MOST_DRAWN_FROM, Choosing

VOCAB_SIZE = 4000
LOGITS = (np.random.default_rng(1).standard_normal((6, VOCAB_SIZE)) * 4).astype(np.float32)  # [positions, vocab]
ENDS = frozenset({int(each) for each in LOGITS.argmax(axis=1)})

SAMPLINGS = [
    Sampling(),
    Sampling(seed=3, temperature=1.0),
    Sampling(seed=3, temperature=0.8, top_p=0.9, min_p=0.01),
    Sampling(seed=4, temperature=1.0, top_k=20, presence_penalty=2.0, frequency_penalty=1.0),
    Sampling(repetition_penalty=1.5, logit_bias=((7, 100.0),)),
]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_it_is_the_session_s_choice(sampling: Sampling) -> None:
    counts, drafts, expected = Counter({7: 2}), list[int](), list[int]()
    choosing = Choosing(sampling, 50, Counter(counts))
    for number, logits in enumerate(LOGITS):
        drafts.append(choosing.token(logits, drafts))
        expected.append(choose(logits, sampling, 50 + number, counts))
        counts[expected[-1]] += 1
    assert drafts == expected


def test_ends_are_masked_where_they_will_be() -> None:
    choosing = Choosing(ends=ENDS, num_endless=2)
    drafts: list[int] = []
    for logits in LOGITS[:3]:
        drafts.append(choosing.token(logits, drafts))
    assert [draft in ENDS for draft in drafts] == [False, False, True]
    assert [choosing.ends_with(drafts[:number]) for number in (1, 2, 3)] == [False, False, True]
    assert not choosing.ends_with([next(iter(ENDS))]), "it would have been masked"
    assert not GREEDY.ends_with(drafts)


def test_the_draw_is_among_few() -> None:
    """An id that the session would draw once in millions of times is never drafted."""
    flat = np.zeros(VOCAB_SIZE, np.float32)
    found = {Choosing(Sampling(seed=seed, temperature=1.0)).token(flat, ()) for seed in range(2000)}
    assert len(found) <= MOST_DRAWN_FROM
    assert len(found) > MOST_DRAWN_FROM / 2
