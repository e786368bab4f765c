"""Order statistics without NumPy, equal to its own."""

import math
import statistics
from collections.abc import Iterable, Sequence

SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which a share of the others lies, linear between two of them.

    Hyndman and Fan (1996), definition 7; NumPy's default.

    Args:
        ordered: at least one value, ascending.
        share: 0 to 1.
    """
    place = (len(ordered) - 1) * share
    below = math.floor(place)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    part = place - below
    # From the nearer end, as NumPy does: the result is then never outside the two values.
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)


def median(values: Iterable[float]) -> float:
    """Of at least one value; the mean of two in the middle, which p50 equals but for rounding."""
    return statistics.median(values)


def mean(values: Sequence[float]) -> float:
    """Of at least one value."""
    return math.fsum(values) / len(values)


def distribution(values: Iterable[float]) -> dict[str, float] | None:
    """Minimum, mean, maximum and `SHARES` of values; None of none."""
    ordered = sorted(values)
    if not ordered:
        return None
    shares = {name: percentile(ordered, share) for name, share in SHARES.items()}
    return {"min": ordered[0], "mean": mean(ordered), "max": ordered[-1], **shares}
