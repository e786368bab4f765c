"""Recall and perplexity, as they stand in a report.

The token at history index p + 1 is predicted from position p: -log of its probability given tokens 0..p under the law.
Perplexity is exp of the mean over positions (and texts). Position p lies inside where p < S + W: it sees everything;
the others lie past the wrap.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from statistics import median_low
from typing import Any

import numpy as np

from kakeya_bench.quality.material.dialogue import Losses, Text
from kakeya_bench.quality.material.script import Outcome
from kakeya_bench.quality.measure.measurement import Asked
from kakeya_bench.quality.plan import Configuration, Kind
from kakeya_bench.statistics.share import Share

NUM_INTERVALS = 18  # of a curve over the whole text
FALLEN = 0.5  # recall below this has fallen


def perplexity(
    configuration: Configuration, texts: Sequence[Text], losses: Sequence[Losses], reference: Sequence[Losses]
) -> dict[str, Any]:
    """Perplexity in one configuration, beside that of the reference: full attention, as far as its positions go."""
    num_positions, num_known = max(map(len, losses)), max(map(len, reference))
    buckets = [
        between(texts, losses, start, stop)
        | {"full_attention": between(texts, reference, start, stop) if stop <= num_known else None}
        for start, stop in bounds(configuration.capacity, num_positions)
    ]
    return {
        **asdict(configuration),
        "buckets": buckets,
        "past_the_wrap": between(texts, losses, min(configuration.capacity, num_positions), num_positions),
        "whole": between(texts, losses, 0, num_positions),
        "curve": curve(texts, losses),
    }


def curve(texts: Sequence[Text], losses: Sequence[Losses]) -> list[dict[str, Any]]:
    """By intervals of the whole text, the same in all configurations, as far as there are losses."""
    num_known = max(map(len, losses))
    whole = intervals(max(len(text.tokens) for text in texts) - 1)
    return [between(texts, losses, start, stop) for start, stop in whole if stop <= num_known]


def between(texts: Sequence[Text], losses: Sequence[Losses], start: int, stop: int) -> dict[str, Any]:
    """Perplexity over positions start..stop-1: over all tokens predicted there, and over those of the assistant."""
    taken = [of_text[start:stop] for of_text in losses]
    is_answer = [
        np.array(text.is_answer[start + 1 : start + 1 + len(some)], dtype=np.bool_)
        for text, some in zip(texts, taken, strict=True)
    ]
    everything = np.concatenate(taken)
    of_answers = everything[np.concatenate(is_answer)]
    return {
        "start": start,
        "stop": stop,
        "num_tokens": len(everything),
        "value": _exp_mean(everything),
        "num_answer_tokens": len(of_answers),
        "of_answers": _exp_mean(of_answers),
    }


def bounds(capacity: int, num_positions: int) -> Iterator[tuple[int, int]]:
    """[0, S+W), then doubling: [S+W, 2(S+W)), [2(S+W), 4(S+W)), ..., cut at the number of positions."""
    start, stop = 0, capacity
    while start < num_positions:
        yield start, min(stop, num_positions)
        start, stop = stop, 2 * stop


def intervals(num_positions: int) -> list[tuple[int, int]]:
    """Of equal length, but for rounding."""
    edges = [round(index * num_positions / NUM_INTERVALS) for index in range(NUM_INTERVALS + 1)]
    return [(start, stop) for start, stop in pairwise(edges) if start < stop]


def _exp_mean(losses: Losses) -> float | None:
    """None of nothing, and where a broken model's logits are no numbers."""
    value = float(np.exp(losses.mean())) if len(losses) else np.nan
    return value if np.isfinite(value) else None


def recall(asked: Asked, enough: int) -> dict[str, Any]:
    """Recall in one configuration, by distance.

    What is lowest, and where recall falls, is told by the distances at which enough was asked.

    Args:
        enough: questions at a distance.
    """
    window = asked.configuration.window
    by_distance = []
    for target in sorted({outcome.target for outcome in asked.outcomes}):
        outcomes = [outcome for outcome in asked.outcomes if outcome.target == target]
        recalled, inside, beyond = _shares(outcomes, window)
        distance = median_low(outcome.first for outcome in outcomes)
        by_distance.append({"target": target, "distance": distance, **recalled, "inside": inside, "beyond": beyond})
    well_sampled = [at for at in by_distance if at["num"] >= enough]
    falls_at = next((at["distance"] for at in well_sampled if at["share"] < FALLEN), None)
    further = [at["share"] for at in well_sampled if falls_at is not None and at["distance"] >= falls_at]
    anywhere, inside, _ = _shares(asked.outcomes, window)
    return {
        **asdict(asked.configuration),
        "told_by": "user" if asked.kind is Kind.RECALL else "system",
        "pinned": asked.kind is Kind.PINNED,
        "falls_at": falls_at,
        "stays_fallen": bool(further) and max(further) < FALLEN,
        "lowest_inside": lowest((at["inside"] for at in by_distance), enough),
        "lowest_beyond": lowest((at["beyond"] for at in by_distance), enough),
        "inside": inside,
        "anywhere": anywhere,
        "by_distance": by_distance,
    }


def multi_turn(asked: Asked) -> dict[str, Any]:
    """By what was in sight; questions whose telling is in the middle of leaving it count nowhere."""
    _, in_sight, out_of_sight = _shares(asked.outcomes, asked.configuration.window)
    return {**asdict(asked.configuration), "in_sight": in_sight, "out_of_sight": out_of_sight}


def lowest(shares: Iterable[Mapping[str, Any]], enough: int) -> float | None:
    """Of shares of at least so many; None where there is none."""
    return min((share["share"] for share in shares if share["num"] >= enough), default=None)


def _shares(outcomes: Sequence[Outcome], window: int) -> list[dict[str, Any]]:
    """Of all questions; of those whose telling stays in sight; of those whose telling the window alone sees no more."""
    in_sight = [outcome for outcome in outcomes if outcome.is_in_sight(window)]
    out_of_sight = [outcome for outcome in outcomes if outcome.is_out_of_sight(window)]
    return [Share.of(each.recalled for each in some).document() for some in (outcomes, in_sight, out_of_sight)]
