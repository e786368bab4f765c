"""Choosing a token: the steps, the shape of the draw, log-probabilities. The exact answers are in test_vectors."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_worker.engine.sampling import gumbel
from kakeya_worker.engine.sampling.elementary import exp, log
from kakeya_worker.engine.sampling.philox import uniforms
from kakeya_worker.engine.sampling.sampling import Sampling, choose, token_detail


def test_uniforms_depend_on_seed_index_and_id_alone() -> None:
    ids = np.arange(1000)
    draws = uniforms(12345, 678, ids)
    assert draws[500] == uniforms(12345, 678, np.array([500]))[0]
    assert not np.array_equal(draws, uniforms(12346, 678, ids))
    assert not np.array_equal(draws, uniforms(12345, 679, ids))
    assert not np.array_equal(draws, uniforms(12345 + (1 << 32), 678, ids))
    assert not np.array_equal(draws, uniforms(12345, 678 + (1 << 32), ids))
    assert 0.0 < draws.min() < 0.01 < 0.99 < draws.max() < 1.0


def _logits(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def _drawn(logits: np.ndarray, asked: Sampling) -> set[int]:
    return {choose(logits, asked, index) for index in range(400)}


def test_without_a_finite_best_logit_a_choice_is_an_error() -> None:
    for bad in (np.nan, np.inf):
        with pytest.raises(FloatingPointError, match="history index 5"):
            choose(_logits(1, bad, 2), Sampling(), 5)
    with pytest.raises(FloatingPointError):
        choose(_logits(-np.inf, -np.inf), Sampling(), 5)
    with pytest.raises(FloatingPointError, match="masked"):
        choose(_logits(1, 2, -np.inf), Sampling(), 5, masked={0, 1})


def test_only_what_is_allowed_and_not_masked_is_drawn() -> None:
    everything = Sampling(seed=3, temperature=100.0, logit_bias=((0, 1e6),), repetition_penalty=2.0)
    allowed = np.array([False, True, True, True])
    found = {choose(_logits(5, 1, 2, 3), everything, i, {0: 3, 1: 1}, (3,), allowed) for i in range(400)}
    assert found == {1, 2}
    assert choose(_logits(5, 1, 2, 3), Sampling(top_k=3), 0, allowed=allowed) == 3
    for impossible in (np.zeros(4, np.bool_), np.array([True, False, False, False])):
        with pytest.raises(FloatingPointError, match="masked"):
            choose(_logits(5, 1, 2, 3), Sampling(), 5, masked=(0,), allowed=impossible)
    with pytest.raises(FloatingPointError, match="masked"):
        choose(_logits(5, -np.inf), Sampling(), 5, allowed=np.array([False, True]))


def test_a_choice_leaves_the_logits_as_they_are() -> None:
    logits = _logits(1, 3, 2)
    choose(logits, Sampling(1, 0.5, 0.9, 2, 0.1, 1.0, 1.0, ((0, 5.0),), 1.5), 5, {1: 2}, (1,), np.ones(3, np.bool_))
    assert logits.tolist() == [1, 3, 2]


def test_greedy_takes_the_highest_and_of_equals_the_lower_id() -> None:
    assert choose(_logits(1, 3, 3, 2), Sampling(seed=9), 5) == 1


def test_top_k_keeps_the_lower_ids_of_equals() -> None:
    assert _drawn(_logits(0, 5, 1, 1, 1, 5), Sampling(seed=1, temperature=100.0, top_k=3)) == {1, 2, 5}


def test_top_p_keeps_the_fewest_ids_that_reach_the_mass() -> None:
    logits = np.log(np.array([0.1, 0.4, 0.2, 0.3])).astype(np.float32)
    for top_p, expected in ((0.35, {1}), (0.6, {1, 3}), (0.85, {1, 3, 2}), (1.0, {0, 1, 2, 3})):
        assert _drawn(logits, Sampling(seed=2, temperature=1.0, top_p=top_p)) == expected


def test_min_p_keeps_ids_by_their_likelihood_beside_the_best() -> None:
    logits = np.log(np.array([0.1, 0.4, 0.21, 0.29])).astype(np.float32)
    for min_p, expected in ((0.9, {1}), (0.7, {1, 3}), (0.5, {1, 3, 2}), (0.0, {0, 1, 2, 3})):
        assert _drawn(logits, Sampling(seed=2, temperature=1.0, min_p=min_p)) == expected


def test_penalties_count_this_generates_tokens() -> None:
    asked = Sampling(presence_penalty=0.5, frequency_penalty=0.25)
    logits = _logits(2.0, 1.4, 1.0)
    chosen = [choose(logits, asked, 9, counts) for counts in ({}, {0: 1}, {0: 1, 1: 1}, {0: 3, 1: 1})]
    assert chosen == [0, 1, 0, 2]
    assert choose(logits, Sampling(), 9, {0: 50}) == 0


def test_a_repetition_penalty_divides_what_is_positive_and_multiplies_the_rest() -> None:
    asked = Sampling(repetition_penalty=2.0)
    assert asked.has_penalties
    assert not Sampling().has_penalties
    chosen = [choose(_logits(3.0, 2.0, 1.0), asked, 9, counts) for counts in ({}, {0: 1}, {0: 9}, {0: 1, 1: 1})]
    assert chosen == [0, 1, 1, 0]
    assert choose(_logits(-2.0, -3.0, -3.5), asked, 9, {0: 1, 1: 1}) == 2


def test_masked_ids_are_never_drawn() -> None:
    logits = _logits(9.0, 1.0, 1.0, 8.0)
    everything = Sampling(seed=3, temperature=2.0, top_k=3, top_p=0.999)
    assert {choose(logits, everything, index, masked={0, 3}) for index in range(400)} == {1, 2}


def test_a_bias_is_added_to_the_logit() -> None:
    assert choose(_logits(2.0, 1.0, 1.5), Sampling(logit_bias=((1, 1.5), (0, -0.1))), 9) == 1


def test_draws_follow_the_distribution() -> None:
    probabilities = np.array([0.05, 0.15, 0.3, 0.5])
    logits = np.log(probabilities).astype(np.float32)
    drawn = np.bincount([choose(logits, Sampling(seed=4, temperature=1.0), index) for index in range(4000)])
    chi_square = (((drawn - 4000 * probabilities) ** 2) / (4000 * probabilities)).sum()
    assert chi_square < 16.27  # the 0.1 % point for 3 degrees of freedom; the seed is fixed


def test_ids_that_are_left_out_of_the_draw_could_not_have_won(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where the best draws the least number there is, and they the greatest."""

    def extreme(seed: int, history_index: int, token_ids: np.ndarray) -> np.ndarray:
        return (np.where(token_ids == 0, 0, 2**52 - 1) + 0.5) * 2.0**-52

    monkeypatch.setattr(gumbel, "uniforms", extreme)
    assert choose(_logits(0.0, -40.25), Sampling(temperature=1.0), 5) == 1
    assert choose(_logits(0.0, -40.375), Sampling(temperature=1.0), 5) == 0


def test_nor_could_ids_that_are_left_out_because_of_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many, with the best and the one that wins in spite of it at either end."""

    def extreme(seed: int, history_index: int, token_ids: np.ndarray) -> np.ndarray:
        return (np.where(token_ids == 0, 0, np.where(token_ids == 4999, 2**52 - 1, 2**51)) + 0.5) * 2.0**-52

    monkeypatch.setattr(gumbel, "uniforms", extreme)
    logits = np.full(5000, -39.0, np.float32)
    logits[0], logits[4999] = 0.0, -40.25
    assert choose(logits, Sampling(temperature=1.0), 5) == 4999
    logits[7] = -4.0
    assert choose(logits, Sampling(temperature=1.0), 5) == 4999
    logits[7] = -3.75
    assert choose(logits, Sampling(temperature=1.0), 5) == 7


def test_a_large_vocabulary_takes_few_logarithms(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are what a draw took most of its time for. That of a distribution that is flat, too."""
    computed = []

    def counted(x: np.ndarray) -> np.ndarray:
        computed.append(x.size)
        return log(x)

    monkeypatch.setattr(gumbel, "log", counted)
    logits = np.random.default_rng(2).normal(size=50_000).astype(np.float32)
    for temperature in (1.0, 100.0):
        for index in range(20):
            choose(logits, Sampling(5, temperature), index)
    assert sum(computed) / 40 < 50


@given(st.lists(st.integers(0, 2**52 - 1), min_size=1), st.integers(0, 51))
def test_a_gumbel_number_is_never_above_its_bound(numbers: list[int], ones: int) -> None:
    bits = np.array([0, 2**52 - 1, 2**52 - 2**ones, 2**ones, *numbers])
    u = (bits.astype(np.float64) + 0.5) * 2.0**-52
    most, exact = gumbel._most_gumbel(u), gumbel._gumbel(u)
    assert (most >= exact).all()
    assert (most <= exact.clip(0.0) + 4.0).all()  # a bound that says something


def _all_summed(logits: np.ndarray, asked: Sampling, index: int) -> int:
    """A choice as it is defined: all mass is summed, and all Gumbel numbers are computed."""
    scores = logits.astype(np.float64) / asked.temperature
    descending = np.sort(scores)[::-1]
    mass = np.cumsum(exp(descending - descending[0]))
    num_kept = int(np.searchsorted(mass, asked.top_p * mass[-1])) + 1
    kept = np.lexsort((np.arange(scores.size), -scores))[:num_kept]
    sums = np.full(scores.size, -np.inf)
    sums[kept] = scores[kept] - log(-log(uniforms(asked.seed, index, kept)))
    return int(np.argmax(sums))


@pytest.mark.parametrize("top_p", [0.999_999, 0.95, 0.5, 0.25, 1e-9])
@pytest.mark.parametrize("digits", [None, 1, 0])
@pytest.mark.parametrize("spread", [0.0, 0.001, 1.0, 4.0])
@pytest.mark.parametrize("vocab_size", [1, 512, 1024, 20_000])
def test_what_is_bounded_first_is_chosen_as_if_all_were_computed(
    vocab_size: int, spread: float, digits: int | None, top_p: float
) -> None:
    """With equal scores a part of the mass is reached just where the bounds leave it open."""
    logits = np.random.default_rng(vocab_size).normal(0.0, spread, vocab_size).astype(np.float32)
    logits = logits if digits is None else logits.round(digits)
    for asked in (Sampling(7, 0.7, top_p), Sampling(2**64 - 1, 1.0, top_p)):
        for index in (0, 2**35 + 1):
            assert choose(logits, asked, index) == _all_summed(logits, asked, index)


def test_what_a_sum_in_another_order_leaves_open_is_summed_in_descending_order() -> None:
    """A thousand alike and a bit of mass beside them: half of all is reached by one more than half of the thousand."""
    for bit, num_kept in ((-np.inf, 500), (-23.0, 501)):
        logits = np.append(np.zeros(1000, np.float32), np.float32(bit))
        assert _drawn(logits, Sampling(3, 1.0, 0.5)) <= set(range(num_kept))
        last = next(seed for seed in range(5000) if _best_of(seed, num_kept) == num_kept - 1)
        assert choose(logits, Sampling(last, 1.0, 0.5), 0) == num_kept - 1


def _best_of(seed: int, num: int) -> int:
    """Of so many ids that score alike."""
    return int(np.argmax(uniforms(seed, 0, np.arange(num))))


def test_greedy_is_the_same_with_what_changes_nothing() -> None:
    logits = np.random.default_rng(1).normal(size=300).round(1).astype(np.float32)
    plain = choose(logits, Sampling(), 0)
    assert choose(logits, Sampling(logit_bias=((0, 0.0),)), 0) == choose(logits, Sampling(), 0, masked=(1,)) == plain
    for shifted in (
        Sampling(logit_bias=((plain, -9.0),)),
        Sampling(presence_penalty=9.0),
        Sampling(frequency_penalty=9.0),
        Sampling(repetition_penalty=99.0),
    ):
        assert choose(logits, shifted, 0, {plain: 1}) != plain


def test_mass_that_is_left_out_of_the_sum_could_not_have_changed_it() -> None:
    """Summed from the best on, terms below its last bit vanish one by one, however many they are."""
    assert np.cumsum(np.array([1.0] + [math.exp(-40.5)] * 150_000))[-1] == 1.0


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.floats(0.1, 5), st.integers(0, 60))
def test_a_choice_does_not_change_with_an_id_that_was_not_chosen(
    seed: int, index: int, temperature: float, top_k: int
) -> None:
    logits = np.random.default_rng(0).normal(size=50).astype(np.float32)
    asked = Sampling(seed, temperature, top_k=top_k)
    chosen = choose(logits, asked, index)
    least = int(np.argmin(logits))
    if least != chosen:
        logits[least] -= 1.0
    assert choose(logits, asked, index) == chosen


@given(st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=60), st.integers(0, 20), st.data())
def test_log_probabilities_are_those_of_the_softmax(values: list[float], num_top: int, data: st.DataObject) -> None:
    token_id = data.draw(st.integers(0, len(values) - 1))
    detail = token_detail(_logits(*values), token_id, num_top)
    log_sum = math.log(math.fsum(map(math.exp, values)))
    assert detail.logprob == pytest.approx(values[token_id] - log_sum, abs=1e-12)
    ranked = sorted(range(len(values)), key=lambda i: (-values[i], i))[:num_top]
    assert [top_id for top_id, _ in detail.top] == ranked
    assert [logprob for _, logprob in detail.top] == pytest.approx([values[i] - log_sum for i in ranked], abs=1e-12)
