"""The proposer `ngram`: what it finds, what it forgets, what it holds."""

import random

import pytest

from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.speculation import ngram
from kakeya_worker.engine.speculation.ngram import MAX_TOKENS, NgramProposer

QUOTED = list(range(100, 140))


@pytest.fixture
def proposer() -> NgramProposer:
    return ngram.ngram(LaneGeometry(sink=4, window=60, chunk=32), vocab_size=1024)


def test_what_followed_before_is_drafted(proposer: NgramProposer) -> None:
    proposer.extend([*QUOTED, 7, 8, 9, *QUOTED[:5]])
    assert list(proposer.propose(QUOTED[5], 8)) == QUOTED[6:14]


def test_so_it_is_token_by_token(proposer: NgramProposer) -> None:
    for token_id in [*QUOTED, 7, 8, 9, *QUOTED[:5]]:
        proposer.extend([token_id])
    assert list(proposer.propose(QUOTED[5], 8)) == QUOTED[6:14]


def test_nothing_is_drafted_behind_what_was_never_there(proposer: NgramProposer) -> None:
    proposer.extend(QUOTED)
    assert list(proposer.propose(7, 8)) == []
    assert list(NgramProposer().propose(7, 8)) == []


def test_two_tokens_in_common_bring_two_and_one_brings_none(proposer: NgramProposer) -> None:
    proposer.extend([*QUOTED, 7])
    assert list(proposer.propose(QUOTED[4], 8)) == []
    proposer.extend([QUOTED[4]])
    assert list(proposer.propose(QUOTED[5], 8)) == QUOTED[6:8]
    assert list(proposer.propose(QUOTED[5], 1)) == QUOTED[6:7]
    proposer.extend([QUOTED[5]])
    assert list(proposer.propose(QUOTED[6], 3)) == QUOTED[7:10]


def test_the_longer_run_wins_over_the_later_place(proposer: NgramProposer) -> None:
    proposer.extend([1, 2, 3, 4, 5, 6, 50, 9, 9, 4, 5, 6, 60, 1, 2, 3, 4, 5])
    assert list(proposer.propose(6, 1)) == [50]


def test_of_equal_runs_the_latest_wins(proposer: NgramProposer) -> None:
    proposer.extend([4, 5, 6, 50, 4, 5, 6, 60, 4, 5])
    assert list(proposer.propose(6, 1)) == [60]


def test_what_repeats_itself_goes_on(proposer: NgramProposer) -> None:
    """Beyond the end of what is there."""
    proposer.extend([1, 2, 3, 1, 2, 3, 1])
    assert list(proposer.propose(2, 7)) == [3, 1, 2, 3, 1, 2, 3]
    constant = NgramProposer()
    constant.extend([5, 5, 5, 5])
    assert list(constant.propose(5, 4)) == [5, 5, 5, 5]


def test_it_drafts_no_more_than_it_says(proposer: NgramProposer) -> None:
    proposer.extend([*QUOTED, *QUOTED[:3]])
    assert len(proposer.propose(QUOTED[3], 100)) == MAX_TOKENS


def test_it_begins_anew(proposer: NgramProposer) -> None:
    proposer.extend(QUOTED)
    proposer.restart(QUOTED[20:])
    proposer.extend(QUOTED[:3])
    assert list(proposer.propose(QUOTED[3], 4)) == []
    proposer.extend([7, *QUOTED[20:23]])
    assert list(proposer.propose(QUOTED[23], 4)) == QUOTED[24:28]


@pytest.mark.parametrize("part", [1 << 20, 30_000])
def test_what_is_long_ago_is_forgotten(proposer: NgramProposer, part: int) -> None:
    """As many tokens are kept as are said, and no other is ever drafted in their place."""
    kept = ngram.NUM_KEPT
    rest = [1000 + number % 20 for number in range(kept)]
    proposer.extend(QUOTED)
    for start in range(0, kept - 100, part):
        proposer.extend(rest[start : min(start + part, kept - 100)])
    proposer.extend(QUOTED[:5])
    assert list(proposer.propose(QUOTED[5], 4)) == QUOTED[6:10]
    proposer.restart(QUOTED)
    for start in range(0, kept, part):
        proposer.extend(rest[start : start + part])
    proposer.extend(QUOTED[:5])
    assert list(proposer.propose(QUOTED[5], 4)) == []


def test_numbers_go_on_beyond_32_bits(proposer: NgramProposer) -> None:
    proposer._end = (1 << 32) - 20
    proposer.extend([*QUOTED, 7, *QUOTED[:5]])
    assert list(proposer.propose(QUOTED[5], 8)) == QUOTED[6:14]


def test_a_draft_is_always_what_followed_the_last_tokens(proposer: NgramProposer) -> None:
    """Held against a search through all of it."""
    source = random.Random(5)
    history = [source.randrange(4) for _ in range(400)]
    proposer.extend(history)
    for _ in range(300):
        token_id = source.randrange(4)
        drafts = proposer.propose(token_id, 1)
        whole = [*history, token_id]
        expected: list[int] = []
        for order in ngram.ORDERS:
            run = whole[-order:]
            places = [n for n in range(order, len(whole) - 1) if whole[n - order : n] == run]
            if places:
                expected = [whole[places[-1]]]
                break
        assert list(drafts) == expected
        history.append(token_id)
        proposer.extend([token_id])


def test_memory_is_said_in_bytes(proposer: NgramProposer) -> None:
    assert proposer.memory_bytes == 1 << 20
