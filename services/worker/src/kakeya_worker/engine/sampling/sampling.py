"""Chooses a token from raw logits: masks, bias, penalties, temperature, top_k, top_p, min_p, draw.

Every step changes the scores, in float64, or leaves fewer ids. The draw among these (gumbel.py) needs no normalizing
sum. So a choice depends on the logits, the parameters, the index and, with penalties, the tokens of this Generate.

The bits are the same on every machine: exp and log are those of `elementary`, and sums go one term after another
(`np.cumsum`, whose order is fixed; that of `np.sum` is not). `kakeya_worker/conformance/vectors` holds known answers.

A vocabulary has up to hundreds of thousands of ids, and few of them matter. What costs much by the id is first bounded
by what costs little, and computed where the bound leaves it open.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.engine.sampling.elementary import Floats, exp, in_blocks, log
from kakeya_worker.engine.sampling.gumbel import GUMBEL_RANGE, Draw, Survivors, TokenIds, draw

Counts = Mapping[int, int]
_NO_COUNTS: Counts = MappingProxyType({})

_FEW = (512, 8192)  # of the likeliest ids, in which the mass of `top_p` is looked for before it is in all of them
_SUM_TOLERANCE = 1e-9  # of numpy's exp and sum beside ours, relative: a hundred times what rounding makes of 10^6 terms


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

    @property
    def takes_the_best(self) -> bool:
        """Whether the choice is that of the largest logit, of those that are allowed."""
        return self.temperature == 0.0 and not self.logit_bias and not self.has_penalties


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
    draw_from: Draw = draw,
) -> int:
    """The token at `history_index`, from the logits [vocab] of the token before it. Ties: the lower id.

    Args:
        counts: how often this Generate has produced each id; looked at where there are penalties.
        masked: ids that may not be chosen.
        allowed: True where an id may, of what is not masked; [vocab] bool. None: everywhere.
        draw_from: a form of `gumbel.draw`, with the same bits.

    Raises:
        FloatingPointError: the largest logit is not a finite number, or none but masked ones are.
    """
    if not np.isfinite(logits.max()):
        raise FloatingPointError(f"the logits at history index {history_index} are not finite")
    if sampling.takes_the_best and not masked and allowed is None:
        return int(logits.argmax())
    scores = logits.astype(np.float64)
    if allowed is not None:
        scores[~allowed] = -np.inf
    if masked:
        scores[list(masked)] = -np.inf
    if (masked or allowed is not None) and scores.max() == -np.inf:
        raise FloatingPointError(f"all that is possible at history index {history_index} is masked")
    survivors = Survivors(scores)
    for step in STEPS:
        step(survivors, sampling, counts)
    return draw_from(survivors, sampling.seed, history_index)


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


def _logit_bias(survivors: Survivors, sampling: Sampling, counts: Counts) -> None:
    for token_id, bias in sampling.logit_bias:
        survivors.all_scores[token_id] += bias


def _repetition_penalty(survivors: Survivors, sampling: Sampling, counts: Counts) -> None:
    """However often an id came."""
    penalty = sampling.repetition_penalty
    if penalty != 1.0:
        token_ids = np.fromiter(counts, np.int64, len(counts))
        repeated = survivors.all_scores[token_ids]
        survivors.all_scores[token_ids] = np.where(repeated > 0.0, repeated / penalty, repeated * penalty)


def _penalties(survivors: Survivors, sampling: Sampling, counts: Counts) -> None:
    if sampling.has_penalties:
        token_ids = np.fromiter(counts.keys(), np.int64, len(counts))
        times = np.fromiter(counts.values(), np.float64, len(counts))
        survivors.all_scores[token_ids] -= sampling.presence_penalty + sampling.frequency_penalty * times


def _temperature(survivors: Survivors, sampling: Sampling, counts: Counts) -> None:
    """Divides; a temperature of 0 leaves the best id alone."""
    if sampling.temperature > 0.0:
        survivors.all_scores /= sampling.temperature
    else:
        survivors.keep(np.array([np.argmax(survivors.scores)]))


def _top_k(survivors: Survivors, sampling: Sampling, counts: Counts) -> None:
    if sampling.top_k > 0:
        survivors.keep(_highest(survivors.scores, sampling.top_k))


def _top_p(survivors: Survivors, sampling: Sampling, counts: Counts) -> None:
    """Mass is summed in descending order."""
    if sampling.top_p < 1.0:
        scores = survivors.scores
        survivors.keep(_down_to(scores, *_least_of_mass(scores, sampling.top_p)))


def _least_of_mass(scores: Floats, top_p: float) -> tuple[float, int]:
    """The lowest of the fewest scores whose mass reaches that part of all mass, and their number.

    The mass of an id out of the Gumbel range, below 2^-53 of the best's, changes no sum that began with the best's. All
    mass is known well enough from a sum of any order and by any exp, unless that leaves open where the part is reached.
    """
    best = scores.max()
    near = scores[scores >= best - GUMBEL_RANGE]
    about_all = np.exp(near - best).sum() * (1.0 + np.array([-_SUM_TOLERANCE, _SUM_TOLERANCE]))
    for num in _FEW:
        if num < near.size:
            descending, mass = _descending(near, num)
            first, last = np.searchsorted(mass, top_p * about_all)
            if first == last < num:
                return descending[first], int(first) + 1
    descending, mass = _descending(near, near.size)
    first = np.searchsorted(mass, top_p * mass[-1])
    return descending[first], int(first) + 1


def _descending(scores: Floats, num: int) -> tuple[Floats, Floats]:
    """The highest scores, and their mass, summed up to each; both [num]."""
    descending = np.sort(np.partition(scores, -num)[-num:])[::-1]
    return descending, np.cumsum(in_blocks(exp, descending - descending[0]))


def _min_p(survivors: Survivors, sampling: Sampling, counts: Counts) -> None:
    """Compares logarithms: score - best >= log(min_p)."""
    if sampling.min_p > 0.0:
        scores = survivors.scores
        survivors.keep(np.flatnonzero(scores - scores.max() >= log(np.array([sampling.min_p]))))


STEPS = (_logit_bias, _repetition_penalty, _penalties, _temperature, _top_k, _top_p, _min_p)


def _highest(scores: Floats, num: int) -> TokenIds:
    """The places of the `num` highest scores, or of all that are not -infinity; of equal ones the first."""
    num = min(num, scores.size)
    least = np.partition(scores, scores.size - num)[scores.size - num]
    return _down_to(scores, least, num) if least > -np.inf else np.flatnonzero(scores > -np.inf)


def _down_to(scores: Floats, least: float, num: int) -> TokenIds:
    """The places of the `num` highest scores, `least` being the last of them; ascending."""
    places = np.flatnonzero(scores >= least)
    if places.size == num:
        return places
    is_above = scores[places] > least
    ties = np.cumsum(~is_above)
    return places[is_above | (ties <= num - np.count_nonzero(is_above))]
