"""Choosing a token: known answers of the generator, the order of the steps, and the shape of the draw."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_worker.engine.philox import philox4x32, uniforms
from kakeya_worker.engine.sampling import Sampling, choose

# Known-answer vectors of Random123 1.14 (kat_vectors: philox4x32 10).
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_known_answers(
    counter: tuple[int, int, int, int], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    c0, c1, c2, c3 = (np.array([word], dtype=np.uint64) for word in counter)
    assert tuple(int(word[0]) for word in philox4x32((c0, c1, c2, c3), key)) == expected


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


def test_greedy_takes_the_highest_and_of_equals_the_lower_id() -> None:
    assert choose(_logits(1, 3, 3, 2), Sampling(seed=9), 5) == 1


def test_greedy_without_finite_logits_is_an_error() -> None:
    for bad in (np.nan, np.inf):
        with pytest.raises(FloatingPointError, match="history index 5"):
            choose(_logits(1, bad, 2), Sampling(), 5)


def test_top_k_keeps_the_lower_ids_of_equals() -> None:
    sampling = Sampling(seed=1, temperature=100.0, top_k=3)
    drawn = {choose(_logits(0, 5, 1, 1, 1, 5), sampling, index) for index in range(300)}
    assert drawn == {1, 2, 5}


def test_top_p_keeps_the_fewest_ids_that_reach_the_mass() -> None:
    logits = np.log(np.array([0.1, 0.4, 0.2, 0.3])).astype(np.float32)
    for top_p, expected in ((0.35, {1}), (0.6, {1, 3}), (0.85, {1, 3, 2}), (1.0, {0, 1, 2, 3})):
        drawn = {choose(logits, Sampling(seed=2, temperature=1.0, top_p=top_p), index) for index in range(400)}
        assert drawn == expected


def test_top_p_measures_mass_after_temperature_and_among_the_top_k() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.2])).astype(np.float32)
    # Of the two that top_k leaves, id 0 has 5/8 of the mass; at temperature 0.5 it has 25/34.
    assert {choose(logits, Sampling(3, 1.0, 0.7, 2), index) for index in range(300)} == {0, 1}
    assert {choose(logits, Sampling(3, 0.5, 0.7, 2), index) for index in range(300)} == {0}


def test_draws_follow_the_distribution() -> None:
    probabilities = np.array([0.05, 0.15, 0.3, 0.5])
    logits = np.log(probabilities).astype(np.float32)
    drawn = np.bincount([choose(logits, Sampling(seed=4, temperature=1.0), index) for index in range(4000)])
    chi_square = (((drawn - 4000 * probabilities) ** 2) / (4000 * probabilities)).sum()
    assert chi_square < 16.27  # the 0.1 % point for 3 degrees of freedom; the seed is fixed


def test_ids_that_are_left_out_of_the_draw_could_not_have_won() -> None:
    """The draw looks at ids close to the best only; over all of them the outcome is the same."""
    logits = np.linspace(-60, 0, 500).astype(np.float32)
    ids = np.arange(500)
    extremes = -np.log(-np.log((np.array([0, 2**52 - 1]) + 0.5) * 2.0**-52))
    assert extremes[1] - extremes[0] < 40.5
    for index in range(200):
        gumbel = -np.log(-np.log(uniforms(6, index, ids)))
        expected = int(np.argmax(logits.astype(np.float64) / 0.7 + gumbel))
        assert choose(logits, Sampling(seed=6, temperature=0.7), index) == expected


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.floats(0.1, 5), st.integers(0, 60))
def test_a_choice_does_not_change_with_an_id_that_was_not_chosen(
    seed: int, index: int, temperature: float, top_k: int
) -> None:
    logits = np.random.default_rng(0).normal(size=50).astype(np.float32)
    sampling = Sampling(seed, temperature, top_k=top_k)
    chosen = choose(logits, sampling, index)
    least = int(np.argmin(logits))
    if least != chosen:
        logits[least] -= 1.0
    assert choose(logits, sampling, index) == chosen
