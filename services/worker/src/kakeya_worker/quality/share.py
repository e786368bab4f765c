"""A share of a count, with what chance leaves open."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

ENOUGH = 16  # so many make a share that is judged
_Z = 1.959963984540054  # the normal distribution's two-sided 95 %


@dataclass(frozen=True)
class Share:
    """So many of so many.

    Attributes:
        hits: how many of them.
        num: how many there are.
    """

    hits: int
    num: int

    @classmethod
    def of(cls, outcomes: Iterable[bool]) -> "Share":
        """Counts."""
        known = list(outcomes)
        return cls(sum(known), len(known))

    @property
    def value(self) -> float | None:
        """None of nothing."""
        return self.hits / self.num if self.num else None

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval (Journal of the American Statistical Association 22, 1927, p. 209)."""
        if not self.num:
            return 0.0, 1.0
        share, z2 = self.hits / self.num, _Z * _Z
        center = share + z2 / (2 * self.num)
        half = _Z * math.sqrt(share * (1 - share) / self.num + z2 / (4 * self.num * self.num))
        scale = 1 + z2 / self.num
        return max(0.0, (center - half) / scale), min(1.0, (center + half) / scale)

    def __add__(self, other: "Share") -> "Share":
        return Share(self.hits + other.hits, self.num + other.num)

    def __str__(self) -> str:
        if self.value is None:
            return "-"
        low, high = self.interval
        return f"{self.value:.1%} ({low:.1%} to {high:.1%}, n = {self.num})"


NONE = Share(0, 0)
