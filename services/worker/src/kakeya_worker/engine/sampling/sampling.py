"""Chooses a token from raw logits: masks, bias, penalties, temperature, top_k, top_p, min_p, draw.

Every step changes the scores of the whole vocabulary in place, in float64; an id that is out gets -infinity. The
draw is Gumbel-max (Gumbel 1954; see arXiv 1611.01144, section 2) over the surviving ids with u = Philox(seed;
history index, token id): it needs no normalizing sum, so it depends on nothing but the logits, the parameters, the
index and, with penalties, the tokens of this Generate.

The bits are the same on every machine: exp and log are those of `elementary`, and sums go one term after another
(`np.cumsum`, whose order is fixed; that of `np.sum` is not). `kakeya_worker/conformance/vectors` holds known answers.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.sampling.elementary import Floats, exp, in_blocks, log
from kakeya_worker.engine.sampling.philox import uniforms

TokenIds = NDArray[np.int64]
Counts = Mapping[int, int]
_NO_COUNTS: Counts = MappingProxyType({})

# -log(-log(u)) lies in [-3.61, 36.74] for the 52-bit u of `uniforms`: an id further than this below the best cannot
# win any draw. Nor can its mass, below 2^-53 of the best's, change a sum that began with the best's.
_GUMBEL_RANGE = 40.5


@dataclass(frozen=True)
class Sampling:
    """How to choose.

    Attributes:
        seed: of the draw, 64 bits.
        temperature: 0 is greedy.
        top_p: survivors are the fewest most likely ids whose mass reaches it; 1 keeps all.
        top_k: survivors are the most likely ids; 0 keeps all.
        min_p: survivors are at least this many times as likely as the likeliest; 0 keeps all.
        presence_penalty: taken off the logit of each id that this Generate has produced.
        frequency_penalty: taken off once for each time that it has.
        logit_bias: (token id, what is added to its logit), each id at most once.
        repetition_penalty: divides the logit of each id that this Generate has produced if that is positive, else
            multiplies it (CTRL, arXiv 1909.05858, section 4.1); 1 changes nothing.
    """

    seed: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    repetition_penalty: float = 1.0

    @property
    def has_penalties(self) -> bool:
        """Whether a choice depends on the tokens before it."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


@dataclass(frozen=True)
class TokenDetail:
    """How likely a chosen token was under the raw logits.

    Attributes:
        logprob: natural logarithm of its probability.
        top: (token id, logprob) of the likeliest ids, descending; equal ones by id.
    """

    logprob: float
    top: tuple[tuple[int, float], ...]


def choose(
    logits: NDArray[np.float32],
    sampling: Sampling,
    history_index: int,
    counts: Counts = _NO_COUNTS,
    masked: Collection[int] = (),
    allowed: NDArray[np.bool_] | None = None,
) -> int:
    """The token at `history_index`, from the logits [vocab] of the token before it. Ties: the lower id.

    Args:
        counts: how often this Generate has produced each id; looked at where there are penalties.
        masked: ids that may not be chosen.
        allowed: True where an id may, of what is not masked; [vocab] bool. None: everywhere.

    Raises:
        FloatingPointError: the largest logit is not a finite number, or none but masked ones are.
    """
    if not np.isfinite(logits.max()):
        raise FloatingPointError(f"the logits at history index {history_index} are not finite")
    scores = logits.astype(np.float64)
    if allowed is not None:
        scores[~allowed] = -np.inf
    if masked:
        scores[list(masked)] = -np.inf
    if (masked or allowed is not None) and scores.max() == -np.inf:
        raise FloatingPointError(f"all that is possible at history index {history_index} is masked")
    for step in STEPS:
        step(scores, sampling, counts)
    return _draw(scores, sampling.seed, history_index)


def token_detail(logits: NDArray[np.float32], token_id: int, num_top: int) -> TokenDetail:
    """The log-probability of a choice and those of the likeliest ids, from the raw logits [vocab].

    Their normalizing sum goes by ascending id. What is impossible is never among the likeliest.
    """
    scores = logits.astype(np.float64)
    shifted = scores - scores.max()
    logprobs = shifted - log(np.cumsum(in_blocks(exp, shifted))[-1:])
    likeliest = _highest(scores, num_top) if num_top else np.arange(0)
    descending = likeliest[np.lexsort((likeliest, -scores[likeliest]))]
    top = zip(descending.tolist(), logprobs[descending].tolist(), strict=True)
    return TokenDetail(float(logprobs[token_id]), tuple(top))


def _logit_bias(scores: Floats, sampling: Sampling, counts: Counts) -> None:
    for token_id, bias in sampling.logit_bias:
        scores[token_id] += bias


def _repetition_penalty(scores: Floats, sampling: Sampling, counts: Counts) -> None:
    """However often an id came."""
    penalty = sampling.repetition_penalty
    if penalty != 1.0:
        token_ids = np.fromiter(counts, np.int64, len(counts))
        repeated = scores[token_ids]
        scores[token_ids] = np.where(repeated > 0.0, repeated / penalty, repeated * penalty)


def _penalties(scores: Floats, sampling: Sampling, counts: Counts) -> None:
    if sampling.has_penalties:
        token_ids = np.fromiter(counts.keys(), np.int64, len(counts))
        times = np.fromiter(counts.values(), np.float64, len(counts))
        scores[token_ids] -= sampling.presence_penalty + sampling.frequency_penalty * times


def _temperature(scores: Floats, sampling: Sampling, counts: Counts) -> None:
    """Divides; a temperature of 0 leaves the best id alone."""
    if sampling.temperature > 0.0:
        scores /= sampling.temperature
    else:
        _keep(scores, np.argmax(scores))


def _top_k(scores: Floats, sampling: Sampling, counts: Counts) -> None:
    if sampling.top_k > 0:
        _keep(scores, _highest(scores, sampling.top_k))


def _top_p(scores: Floats, sampling: Sampling, counts: Counts) -> None:
    """Mass is summed in descending order."""
    if sampling.top_p >= 1.0:
        return
    best = scores.max()
    descending = np.sort(scores[scores >= best - _GUMBEL_RANGE])[::-1]
    mass = np.cumsum(in_blocks(exp, descending - best))
    num_kept = int(np.searchsorted(mass, sampling.top_p * mass[-1])) + 1
    _keep(scores, _down_to(scores, descending[num_kept - 1], num_kept))


def _min_p(scores: Floats, sampling: Sampling, counts: Counts) -> None:
    """Compares logarithms: score - best >= log(min_p)."""
    if sampling.min_p > 0.0:
        _keep(scores, np.flatnonzero(scores - scores.max() >= log(np.array([sampling.min_p]))))


STEPS = (_logit_bias, _repetition_penalty, _penalties, _temperature, _top_k, _top_p, _min_p)


def _draw(scores: Floats, seed: int, history_index: int) -> int:
    survivors = np.flatnonzero(scores >= scores.max() - _GUMBEL_RANGE)
    if survivors.size == 1:
        return int(survivors[0])
    gumbel = in_blocks(lambda token_ids: -log(-log(uniforms(seed, history_index, token_ids))), survivors)
    return int(survivors[np.argmax(scores[survivors] + gumbel)])


def _highest(scores: Floats, num: int) -> TokenIds:
    """The ids of the `num` highest scores, or of all that are not out; of equal ones the lower ids."""
    remaining = scores[scores > -np.inf]
    num = min(num, remaining.size)
    return _down_to(scores, np.partition(remaining, -num)[-num], num)


def _down_to(scores: Floats, least: float, num: int) -> TokenIds:
    """The ids of the `num` highest scores, `least` being the last of them."""
    above = np.flatnonzero(scores > least)
    ties = np.flatnonzero(scores == least)
    return np.concatenate([above, ties[: num - above.size]])


def _keep(scores: Floats, token_ids: TokenIds | np.intp) -> None:
    """Puts all others out."""
    kept = scores[token_ids]
    scores.fill(-np.inf)
    scores[token_ids] = kept
