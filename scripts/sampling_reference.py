"""Sampling a second time, slowly and without numpy: what the test vectors are made with.

Scores are Python's floats, which are IEEE 754 doubles. Everything transcendental that decides something is computed
with 40 decimal digits, and a decision that a rounding error could turn is refused: who follows the specification
gets the same tokens, however exp and log round.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal, localcontext
from itertools import accumulate

DIGITS = Context(prec=40)
MARGIN = Decimal("1e-9")


class TooClose(Exception):
    """A rounding error could turn this decision; change the case."""


@dataclass(frozen=True)
class Parameters:
    """Those of one choice; see kakeya.v1.GenerateRequest."""

    seed: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    repetition_penalty: float = 1.0


def choose(
    logits: Sequence[float],
    asked: Parameters,
    history_index: int,
    counts: Mapping[int, int],
    masked: Collection[int] = (),
) -> int:
    """The token at `history_index`, which is none of those that are masked."""
    with localcontext(DIGITS):
        scores = {i: logit for i, logit in enumerate(logits) if logit > -math.inf and i not in masked}
        for token_id, bias in asked.logit_bias.items():
            if token_id in scores:
                scores[token_id] += bias
        for token_id in counts.keys() & scores.keys():
            score = scores[token_id]
            scores[token_id] = score / asked.repetition_penalty if score > 0 else score * asked.repetition_penalty
        for token_id, times in counts.items():
            if token_id in scores:
                scores[token_id] -= asked.presence_penalty + asked.frequency_penalty * times
        if asked.temperature == 0:
            return _ranked(scores)[0]
        scores = {token_id: score / asked.temperature for token_id, score in scores.items()}
        ranked = _ranked(scores)
        if asked.top_k:
            ranked = ranked[: asked.top_k]
        if asked.top_p < 1:
            ranked = _nucleus(ranked, scores, asked.top_p)
        if asked.min_p > 0:
            likeliest = scores[ranked[0]]
            ranked = [i for i in ranked if _is_reached(_exp(scores[i], likeliest), Decimal(asked.min_p))]
        return _winner({i: Decimal(scores[i]) + gumbel(asked.seed, history_index, i) for i in ranked})


def logprobs(logits: Sequence[float]) -> dict[int, float]:
    """The logarithm of every id's probability, descending, each the nearest double; ids of no probability aside."""
    with localcontext(DIGITS):
        scores = {token_id: logit for token_id, logit in enumerate(logits) if logit > -math.inf}
        ranked = _ranked(scores)
        best = scores[ranked[0]]
        log_sum = sum((_exp(scores[token_id], best) for token_id in ranked), Decimal(0)).ln()
        return {token_id: float(Decimal(scores[token_id]) - Decimal(best) - log_sum) for token_id in ranked}


def gumbel(seed: int, history_index: int, token_id: int) -> Decimal:
    return -(-Decimal(uniform(seed, history_index, token_id)).ln()).ln()


def uniform(seed: int, history_index: int, token_id: int) -> float:
    """A number in (0, 1): the upper 52 bits of the first two words, and a half."""
    key = (seed & 0xFFFFFFFF, seed >> 32)
    high, low, _, _ = philox4x32((history_index & 0xFFFFFFFF, history_index >> 32, token_id, 0), key)
    return (((high << 32 | low) >> 12) + 0.5) / 2**52


def philox4x32(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """Ten rounds, as in Salmon et al., SC 2011, section 4.3."""
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(10):
        product0, product1 = 0xD2511F53 * x0, 0xCD9E8D57 * x2
        x0, x1 = product1 >> 32 ^ x1 ^ k0, product1 & 0xFFFFFFFF
        x2, x3 = product0 >> 32 ^ x3 ^ k1, product0 & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return x0, x1, x2, x3


def _ranked(scores: Mapping[int, float]) -> list[int]:
    """Descending; of equal scores the lower id first."""
    return sorted(scores, key=lambda token_id: (-scores[token_id], token_id))


def _nucleus(ranked: list[int], scores: Mapping[int, float], top_p: float) -> list[int]:
    """The fewest whose mass reaches `top_p` of the whole."""
    masses = [_exp(scores[token_id], scores[ranked[0]]) for token_id in ranked]
    target = Decimal(top_p) * sum(masses)
    num_kept = next(num for num, mass in enumerate(accumulate(masses), start=1) if _is_reached(mass, target))
    return ranked[:num_kept]


def _winner(sums: Mapping[int, Decimal]) -> int:
    first, *others = sorted(sums, key=lambda token_id: -sums[token_id])
    if others and not sums[first] - sums[others[0]] > MARGIN:
        raise TooClose(f"ids {first} and {others[0]} draw nearly equal numbers")
    return first


def _is_reached(amount: Decimal, target: Decimal) -> bool:
    if amount != target and abs(amount - target) < MARGIN * target:
        raise TooClose(f"{amount} nearly equals {target}")
    return amount >= target


def _exp(score: float, likeliest: float) -> Decimal:
    return (Decimal(score) - Decimal(likeliest)).exp()
