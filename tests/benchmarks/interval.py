"""How sure a mean over pairs is."""

from typing import Any

import numpy as np

_NUM_RESAMPLES = 10_000


def interval_of_mean(differences: "np.ndarray[Any, Any]") -> tuple[float, float]:
    """The 95 % interval of the mean, by resampling pairs (bootstrap)."""
    chance = np.random.default_rng(0)
    means = chance.choice(differences, (_NUM_RESAMPLES, len(differences))).mean(axis=1)
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)
