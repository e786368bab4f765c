"""Two sides that are measured in turn, and what the second takes beyond the first."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from kakeya_bench.report.quantities import Precise
from kakeya_bench.report.verdict import Verdict, at_most
from kakeya_bench.statistics import intervals

T = TypeVar("T")


def in_turn(sides: Sequence[T], num_rounds: int) -> Iterator[Sequence[T]]:
    """A round's order: A B, B A, A B, ..., so that what drifts meanwhile is in both."""
    for number in range(num_rounds):
        yield sides[::-1] if number % 2 else sides


def added(
    seconds: Sequence[Sequence[Mapping[str, Sequence[float]]]], names: Sequence[str], bounds_ms: Mapping[str, float]
) -> dict[str, dict[str, Any]]:
    """By what was measured: the difference of medians in milliseconds, in the mean over pairs.

    Args:
        seconds: by pair, by side, by what was measured: what each call took.
        names: of the sides.
        bounds_ms: of the differences, by what was measured.
    """
    return {
        name: _added(np.array([[side[name] for side in pair] for pair in seconds]) * 1e3, names, bound)
        for name, bound in bounds_ms.items()
    }


def _added(milliseconds: "np.ndarray[Any, Any]", names: Sequence[str], bound_ms: float) -> dict[str, Any]:
    medians = np.median(milliseconds, axis=2)  # [pairs, sides]
    differences = (medians[:, 1] - medians[:, 0]).tolist()
    difference = intervals.of_mean(differences)
    p50, p95 = medians.mean(axis=0), np.percentile(milliseconds, 95, axis=2).mean(axis=0)
    return {
        "p50_ms": dict(zip(names, p50.tolist(), strict=True)),
        "p95_ms": dict(zip(names, p95.tolist(), strict=True)),
        "difference_ms": difference.estimate,
        "interval_95_ms": [difference.low, difference.high],
        "difference_by_pair_ms": differences,
        "bound_ms": bound_ms,
        "kept": difference.estimate <= bound_ms,
    }


def verdicts(found: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
    """Whether the bounds are kept of what `added` found."""
    return [
        at_most(name, "milliseconds more:", Precise(each["difference_ms"]), Precise(each["bound_ms"]))
        for name, each in found.items()
    ]
