"""RoPE's angles, in turns: correctly rounded frequencies, and cosines and sines from polynomials."""

from decimal import Decimal, localcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kakeya_worker.conformance.exact_reference.formulas import Floats

_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
_DIGITS = 50
_SIN_DIVISORS = (1, -6, 120, -5040, 362880, -39916800, 6227020800, -1307674368000)
_COS_DIVISORS = (1, -2, 24, -720, 40320, -3628800, 479001600, -87178291200, 20922789888000)


class Angles:
    """The angles of a model.

    Args:
        config: config.json.
    """

    def __init__(self, config: dict[str, Any], head_dim: int) -> None:
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        theta = Decimal(rope.get("rope_theta", config.get("rope_theta", 10_000.0)))
        with localcontext() as context:
            context.prec = _DIGITS
            turns = [theta ** (Decimal(-2 * i) / head_dim) / (2 * _PI) for i in range(head_dim // 2)]
            self._frequencies = np.array([float(_scaled(frequency, rope)) for frequency in turns])

    def at(self, position: int) -> tuple[Floats, Floats]:
        """Cosines and sines; [head_dim / 2] each."""
        turns = position * self._frequencies
        fraction = turns - np.rint(turns)
        quarters = np.rint(4 * fraction)
        x = (fraction - quarters / 4) * (2 * np.pi)
        cos, sin = _polynomial(_COS_DIVISORS, x * x), x * _polynomial(_SIN_DIVISORS, x * x)
        quadrant = quarters.astype(np.int64) % 4  # a quarter turn takes (cos, sin) to (-sin, cos)
        turned_cos = np.choose(quadrant, [cos, -sin, -cos, sin])
        turned_sin = np.choose(quadrant, [sin, cos, -sin, -cos])
        return turned_cos.astype(np.float32), turned_sin.astype(np.float32)


def _scaled(turns: Decimal, rope: dict[str, Any]) -> Decimal:
    """A frequency after the model's scaling: none, linear, or llama3's."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return turns
    stretched = turns / Decimal(rope["factor"])
    if kind == "linear":
        return stretched
    low, high = Decimal(rope["low_freq_factor"]), Decimal(rope["high_freq_factor"])
    num_waves = turns * int(rope["original_max_position_embeddings"])
    if num_waves <= low:
        return stretched
    if num_waves >= high:
        return turns
    share = (num_waves - low) / (high - low)
    return (1 - share) * stretched + share * turns


def _polynomial(divisors: tuple[int, ...], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / d0 + x * (1 / d1 + x * (1 / d2 + ...)), from the inside out."""
    value = np.full_like(x, 1 / divisors[-1])
    for divisor in divisors[-2::-1]:
        value = value * x + 1 / divisor
    return value
