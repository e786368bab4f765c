"""Units in which figures are read easily."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of seconds or of bytes.

    Attributes:
        size: in seconds, or in bytes.
    """

    name: str
    size: float

    def number(self, value: float, decimals: int = 2) -> str:
        """A number of seconds or of bytes, in this unit, with separators of thousands and without the unit's name."""
        return f"{value / self.size:,.{decimals}f}"

    def text(self, value: float, decimals: int = 2) -> str:
        """As `number`, with the unit's name."""
        return f"{self.number(value, decimals)} {self.name}"


_SECONDS = (Unit("s", 1.0), Unit("ms", 1e-3))
_MICROSECONDS = Unit("µs", 1e-6)
_BYTES = (Unit("GiB", 2**30), Unit("MiB", 2**20), Unit("KiB", 2**10))


def of_seconds(largest: float) -> Unit:
    """The unit for durations up to this one: the first in which it is at least 1."""
    return next((unit for unit in _SECONDS if largest >= unit.size), _MICROSECONDS)


def of_bytes(largest: float) -> Unit:
    """The unit for sizes up to this one: the first in which it is at least 1."""
    return next((unit for unit in _BYTES if largest >= unit.size), Unit("bytes", 1))
