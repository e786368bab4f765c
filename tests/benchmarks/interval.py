"""How sure a mean or a median is."""

from typing import Any

import numpy as np

_NUM_RESAMPLES = 10_000


def interval_of_mean(differences: "np.ndarray[Any, Any]") -> tuple[float, float]:
    """The 95 % interval of the mean, by resampling pairs (bootstrap)."""
    return _interval(_resampled(differences).mean(axis=1))


def interval_of_median(values: "np.ndarray[Any, Any]") -> tuple[float, float]:
    """The 95 % interval of the median, by resampling values (bootstrap)."""
    return _interval(np.median(_resampled(values), axis=1))


def _resampled(values: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """[resamples, values]"""
    return np.random.default_rng(0).choice(values, (_NUM_RESAMPLES, len(values)))


def _interval(statistics: "np.ndarray[Any, Any]") -> tuple[float, float]:
    low, high = np.percentile(statistics, (2.5, 97.5))
    return float(low), float(high)
