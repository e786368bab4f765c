"""Recall against distance and multi-turn recall, as they stand in a report."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import median_low
from typing import Any

from kakeya_bench.quality.material.script import Outcome
from kakeya_bench.quality.measure.measurement import Asked
from kakeya_bench.quality.plan import Kind
from kakeya_bench.statistics.share import Share

FALLEN = 0.5  # recall below this has fallen


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
