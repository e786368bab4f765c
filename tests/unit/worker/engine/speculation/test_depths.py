"""How many drafts a step has: what they cost, what they bring, who waits for them."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_worker.engine.speculation.acceptance import Acceptance
from kakeya_worker.engine.speculation.depths import MAX_SLOWDOWN, Candidate, depths

STEP_SECONDS = 0.01


def candidate(share: float, most: int = 15, part: float = 0.07) -> Candidate:
    return Candidate(share, most, part * STEP_SECONDS)


def seconds(candidates: list[Candidate], chosen: list[int]) -> float:
    return STEP_SECONDS + sum(each.seconds * depth for each, depth in zip(candidates, chosen, strict=True))


def gains(candidates: list[Candidate], chosen: list[int]) -> list[float]:
    return [
        max(each.tokens_a_step, sum(each.share**number for number in range(depth + 1)))
        for each, depth in zip(candidates, chosen, strict=True)
    ]


def test_the_more_are_right_the_more_there_are() -> None:
    found = [depths([candidate(share)], STEP_SECONDS, 100)[0] for share in (0.02, 0.3, 0.6, 0.9, 0.99)]
    assert found[0] == 0
    assert found == sorted(found)
    assert found[-1] == 15


def test_the_dearer_a_draft_is_the_fewer_there_are() -> None:
    found = [depths([candidate(0.8, part=part)], STEP_SECONDS, 100)[0] for part in (0.01, 0.1, 0.3, 1.0)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == 0


@settings(deadline=None)
@given(share=st.floats(0.0, 1.0), part=st.floats(0.001, 1.0))
def test_alone_a_session_has_the_most_tokens_a_second(share: float, part: float) -> None:
    one = [candidate(share, part=part)]
    rates = [sum(gains(one, [depth])) / seconds(one, [depth]) for depth in range(16)]
    (found,) = depths(one, STEP_SECONDS, 100)
    assert rates[found] == pytest.approx(max(rates))


@settings(deadline=None)
@given(shares=st.lists(st.floats(0.0, 1.0), min_size=2, max_size=8), part=st.floats(0.001, 0.5), data=st.data())
def test_nobody_is_slowed_down(shares: list[float], part: float, data: st.DataObject) -> None:
    candidates = [candidate(share, data.draw(st.sampled_from([0, 3, 15])), part) for share in shares]
    num_tokens = data.draw(st.integers(0, 60))
    chosen = depths(candidates, STEP_SECONDS, num_tokens)
    assert sum(chosen) <= num_tokens
    assert all(0 <= depth <= each.most for depth, each in zip(chosen, candidates, strict=True))
    stretch = seconds(candidates, chosen) / STEP_SECONDS
    assert stretch <= MAX_SLOWDOWN * min(gains(candidates, chosen)) * (1 + 1e-9)


def test_who_drafts_nothing_hardly_waits_for_who_does() -> None:
    quoting, other = candidate(0.95), candidate(0.5, most=0)
    alone, beside = depths([quoting], STEP_SECONDS, 100), depths([quoting, other], STEP_SECONDS, 100)
    assert alone == [15]
    assert beside == [0, 0]
    assert depths([candidate(0.95, part=0.02), other], STEP_SECONDS, 100) == [2, 0]


def test_who_has_gained_of_late_waits_for_others() -> None:
    """Where it finds nothing itself: on average it is none the slower."""
    quoting = candidate(0.95)
    assert depths([quoting, candidate(0.5, most=0)._replace(tokens_a_step=2.0)], STEP_SECONDS, 100)[0] > 5
    assert depths([quoting, candidate(0.5, most=0)._replace(tokens_a_step=1.1)], STEP_SECONDS, 100)[0] == 2


def test_what_a_session_gains_is_learned() -> None:
    assert _after([]).tokens_a_step == 1.5
    assert _after([(4, 0)] * 100).tokens_a_step < 1.01
    assert _after([(4, 4)] * 200).tokens_a_step == pytest.approx(5.0, abs=0.01)
    assert _after([(4, 4), (4, 0)] * 100).tokens_a_step == pytest.approx(3.0, abs=0.2)


def test_eight_that_quote_draft_all() -> None:
    chosen = depths([candidate(0.9)] * 8, 1.5 * STEP_SECONDS, 200)
    assert min(chosen) >= 2


def test_the_room_goes_to_those_who_are_right() -> None:
    chosen = depths([candidate(0.5, part=0.001), candidate(0.95, part=0.001)], STEP_SECONDS, 8)
    assert sum(chosen) == 8
    assert chosen[1] > chosen[0]


def test_without_costs_a_few_are_drafted() -> None:
    unknown = Candidate(0.5, 15, 0.0)
    assert 1 <= depths([unknown], 0.0, 100)[0] <= 5
    assert depths([unknown._replace(share=0.0)], 0.0, 100) == [0]


def test_drafts_that_cost_nothing_are_all_there() -> None:
    assert depths([Candidate(0.5, 15, 0.0)], STEP_SECONDS, 100) == [15]


def _after(trials: list[tuple[int, int]]) -> Acceptance:
    acceptance = Acceptance()
    for num_drafted, num_accepted in trials:
        acceptance.age()
        acceptance.add(num_drafted, num_accepted)
    return acceptance


def test_acceptance_is_learned() -> None:
    assert _after([]).share == 0.75
    assert _after([(4, 4)] * 20).share > 0.95
    assert _after([(4, 0)] * 20).share < 0.06
    assert 0.7 < _after([(4, 2), (4, 4)] * 20).share < 0.9


def test_behind_the_first_wrong_one_nothing_is_known() -> None:
    """Of four drafts that are right two thirds of the time each, fewer than two thirds are taken."""
    assert _after([(4, 2)] * 100).share == pytest.approx(2 / 3, abs=0.01)


def test_what_is_long_ago_counts_less() -> None:
    acceptance = _after([(4, 0)] * 50)
    least = acceptance.share
    for _ in range(600):
        acceptance.age()
    assert least < 0.03
    assert acceptance.share > 0.4
    assert (acceptance.num_drafted, acceptance.num_accepted) == (200, 0)


@pytest.mark.parametrize(("right", "part"), list(product((0.0, 0.02), (0.05, 0.1))))
def test_a_session_whose_drafts_are_never_right_loses_less_than_a_fiftieth(right: float, part: float) -> None:
    acceptance, num_steps, lost = Acceptance(), 2000, 0.0
    for number in range(num_steps):
        acceptance.age()
        (depth,) = depths([candidate(acceptance.share, part=part)], STEP_SECONDS, 100)
        if depth:
            acceptance.add(depth, int(right > 0 and number % 50 == 0))
            lost += depth * part
    assert lost / num_steps <= 0.02
