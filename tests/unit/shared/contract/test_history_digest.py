"""The digest of a history."""

import random

from kakeya_shared.contract.history_digest import EMPTY_HISTORY, PRIMES, extended_digest


def test_it_is_one_of_the_tokens_and_their_order_however_they_came() -> None:
    draw = random.Random(5)
    tokens = [draw.randrange(1 << 32) for _ in range(500)]
    whole = extended_digest(EMPTY_HISTORY, tokens)
    digest, at = EMPTY_HISTORY, 0
    while at < len(tokens):
        end = at + draw.randrange(40)
        digest, at = extended_digest(digest, tokens[at:end]), end
    assert digest == whole
    assert len({extended_digest(EMPTY_HISTORY, ids) for ids in ((), (0,), (0, 0), (1, 2), (2, 1), (513,))}) == 6
    for at in range(len(tokens) - 1):
        swapped = [*tokens[:at], tokens[at + 1], tokens[at], *tokens[at + 2 :]]
        assert extended_digest(EMPTY_HISTORY, swapped) != whole


def test_its_primes_are_small_enough_for_doubles() -> None:
    """A rest times the base's, and a token: below 2**53 in each."""
    for prime in PRIMES:
        assert (prime - 1) * ((1 << 32) % prime) + (1 << 32) < 1 << 53
        assert all(prime % divisor for divisor in range(2, int(prime**0.5) + 1))
