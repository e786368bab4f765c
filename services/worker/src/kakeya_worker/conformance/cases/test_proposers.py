"""What every proposer must keep, however good its drafts are: checked for each one that is installed."""

import operator
import tracemalloc
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_shared import plugins
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.proposer import NewProposer, Proposer
from kakeya_worker.engine.speculation.proposers import GROUP, load

VOCAB_SIZE = 1 << 17
_LITTLE_BYTES = 1 << 14  # a proposer's objects beside what it keeps of a history
GEOMETRY = LaneGeometry(sink=4, window=60, chunk=32)
# Few ids, so that histories repeat themselves, and the largest there is.
TOKENS = st.lists(st.sampled_from([*range(8), VOCAB_SIZE - 1]), max_size=60)

untimed = settings(deadline=None, max_examples=50)  # busy machines take their time
every_proposer = pytest.mark.parametrize("name", plugins.names(GROUP))


@cache
def _new(name: str) -> NewProposer:
    return load(name)


def _made(name: str) -> Proposer:
    return _new(name)(GEOMETRY, VOCAB_SIZE)


@every_proposer
@untimed
@given(parts=st.lists(TOKENS, max_size=4), token_id=st.integers(0, VOCAB_SIZE - 1), num_tokens=st.integers(1, 40))
def test_drafts_are_tokens_and_no_more_than_were_asked_for(
    name: str, parts: list[list[int]], token_id: int, num_tokens: int
) -> None:
    proposer = _made(name)
    for part in parts:
        proposer.extend(part)
    drafts = proposer.propose(token_id, num_tokens)
    assert len(drafts) <= min(num_tokens, proposer.max_tokens)
    assert all(0 <= operator.index(draft) < VOCAB_SIZE for draft in drafts)


@every_proposer
@untimed
@given(history=TOKENS, sizes=st.lists(st.integers(1, 20), min_size=1), token_id=st.integers(0, 8))
def test_a_history_is_the_same_in_whatever_parts_it_came(
    name: str, history: list[int], sizes: list[int], token_id: int
) -> None:
    whole, parts = _made(name), _made(name)
    whole.extend(history)
    start = 0
    for number in range(len(history)):
        size = sizes[number % len(sizes)]
        parts.extend(history[start : start + size])
        start += size
    assert list(parts.propose(token_id, 8)) == list(whole.propose(token_id, 8))


@every_proposer
@untimed
@given(before=TOKENS, kept=TOKENS, token_id=st.integers(0, 8))
def test_one_that_begins_anew_knows_nothing_of_before(
    name: str, before: list[int], kept: list[int], token_id: int
) -> None:
    used, new = _made(name), _made(name)
    used.extend(before)
    for proposer in (used, new):
        proposer.restart(kept)
    assert list(used.propose(token_id, 8)) == list(new.propose(token_id, 8))


@every_proposer
@untimed
@given(first=TOKENS, second=TOKENS, token_id=st.integers(0, 8))
def test_sessions_know_nothing_of_each_other(name: str, first: list[int], second: list[int], token_id: int) -> None:
    alone = _made(name)
    alone.extend(second)
    expected = list(alone.propose(token_id, 8))
    beside, other = _made(name), _made(name)
    beside.extend(first)
    other.extend(second)
    beside.extend(first)
    assert list(other.propose(token_id, 8)) == expected


@every_proposer
def test_a_history_of_a_million_tokens_takes_what_one_of_ten_thousand_takes(name: str) -> None:
    _made(name).extend([1])  # what is there once, whatever sessions there are
    random = Random(5)
    parts = [random.choices(range(VOCAB_SIZE), k=1_000) for _ in range(1_000)]
    tracemalloc.start()
    try:
        proposer, held = _made(name), {}
        for number, tokens in enumerate(parts, 1):
            proposer.extend(tokens)
            proposer.propose(tokens[0], 8)
            if number in (10, 1_000):
                held[number], _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held[1_000] <= held[10] + _LITTLE_BYTES
    assert held[1_000] <= proposer.memory_bytes + _LITTLE_BYTES
    assert proposer.memory_bytes == _made(name).memory_bytes


@every_proposer
def test_it_drafts_nothing_where_it_says_so(name: str) -> None:
    proposer = _made(name)
    proposer.extend([1, 2, 3, 4, 5, 6] * 20)
    drafts = list(proposer.propose(1, 40))
    assert len(drafts) <= proposer.max_tokens
    assert proposer.max_tokens or not proposer.memory_bytes, "nothing is kept for drafts that never come"
