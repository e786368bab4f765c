"""What many measurements of one thing are like."""

from collections.abc import Iterable

import numpy as np

SHARES = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}


def percentile(values: Iterable[float], percent: float) -> float:
    """Of at least one value, linear between two neighbours: NumPy's default (Hyndman and Fan 1996, definition 7)."""
    return float(np.percentile(np.fromiter(values, float), percent))


def median(values: Iterable[float]) -> float:
    """Of at least one value."""
    return percentile(values, 50)


def distribution(values: Iterable[float | None]) -> dict[str, float] | None:
    """Minimum, mean, maximum and `SHARES` of the values that are known; None where there is none."""
    known = np.array([value for value in values if value is not None], float)
    if not known.size:
        return None
    shares = dict(zip(SHARES, np.percentile(known, list(SHARES.values())).tolist(), strict=True))
    return {"min": float(known.min()), "mean": float(known.mean()), "max": float(known.max()), **shares}


def extent(values: Iterable[int | None]) -> dict[str, float] | None:
    """Minimum, mean and maximum of the values that are known, whole numbers as they are; None where there is none."""
    known = [value for value in values if value is not None]
    return {"min": min(known), "mean": sum(known) / len(known), "max": max(known)} if known else None
