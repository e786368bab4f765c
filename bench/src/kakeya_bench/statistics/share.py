"""A share of a count, with what chance leaves open."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scipy import stats


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
        found = stats.binomtest(self.hits, self.num).proportion_ci(method="wilson")
        return float(found.low), float(found.high)

    def document(self) -> dict[str, Any]:
        """As it stands in a report."""
        low, high = self.interval
        return {"hits": self.hits, "num": self.num, "share": self.value, "low": low, "high": high}

    def __add__(self, other: "Share") -> "Share":
        return Share(self.hits + other.hits, self.num + other.num)

    def __str__(self) -> str:
        return told(self.document())


NONE = Share(0, 0)


def told(share: Mapping[str, Any]) -> str:
    """A share in words, as it stands in a report: `96.9% (89.3% to 99.1%, n = 64)`."""
    if share["share"] is None:
        return "-"
    return f"{share['share']:.1%} ({share['low']:.1%} to {share['high']:.1%}, n = {share['num']})"
