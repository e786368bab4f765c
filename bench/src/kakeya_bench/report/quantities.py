"""Figures that say what they are of, so that tables and axes find the unit in which they are read easily."""

from dataclasses import dataclass


class Seconds(float):
    """A duration."""


class Bytes(int):
    """A size."""


class Share(float):
    """A part of a whole, 0 to 1."""


class Precise(float):
    """A number of which thousandths matter."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of seconds or of bytes.

    Attributes:
        size: in seconds, or in bytes.
    """

    name: str
    size: float


NO_UNIT = Unit("", 1.0)
_SECONDS = (Unit("s", 1.0), Unit("ms", 1e-3), Unit("µs", 1e-6))
_BYTES = (Unit("GiB", 2.0**30), Unit("MiB", 2.0**20), Unit("KiB", 2.0**10), Unit("bytes", 1.0))
UNITS: dict[type, tuple[Unit, ...]] = {Seconds: _SECONDS, Bytes: _BYTES}


def unit(quantity: type, largest: float) -> Unit:
    """The unit for values up to this one: the first in which it is at least 1, else the smallest."""
    units = UNITS.get(quantity, (NO_UNIT,))
    return next((unit for unit in units if largest >= unit.size), units[-1])


def show(value: object) -> str:
    """A value as it stands in a table; None is a dash."""
    match value:
        case None:
            return "\N{EN DASH}"
        case bool():
            return "yes" if value else "no"
        case Share():
            return f"{value:.1%}"
        case Precise():
            return f"{value:.1e}" if 0 < abs(value) < 1e-3 else f"{value:,.3f}"
        case Seconds() | Bytes():
            found = unit(type(value), abs(value))
            number = f"{value / found.size:,.2f}" if found.size != 1 or isinstance(value, Seconds) else f"{value:,}"
            return f"{number} {found.name}"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.2f}"
        case _:
            return str(value)


def counted(number: int, noun: str) -> str:
    """So many of a thing, e.g. "1 turn"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def is_number(value: object) -> bool:
    """Whether it is aligned on the right."""
    return isinstance(value, int | float) and not isinstance(value, bool)
