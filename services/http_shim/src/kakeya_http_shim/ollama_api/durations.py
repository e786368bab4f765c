"""How long something is to be kept, as Ollama's API says it."""

import math
import re
from typing import Annotated, Any, Final

from pydantic import Discriminator, StringConstraints, Tag

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_UNIT = "(?:ns|us|µs|μs|ms|s|m|h)"
_PART = re.compile(f"({_NUMBER})({_UNIT})")
_MAX_LETTERS = 64
FOR_EVER: Final = 1 << 31
"""Seconds: longer than any session is kept."""


def _branch(given: Any) -> str:
    return "text_branch" if isinstance(given, str) else "number_branch"


KeepAlive = Annotated[
    Annotated[
        str,
        StringConstraints(pattern=f"^[-+]?(?:(?:{_NUMBER}{_UNIT})+|{_NUMBER})$", max_length=_MAX_LETTERS),
        Tag("text_branch"),
    ]
    | Annotated[float, Tag("number_branch")],
    Discriminator(_branch),
]
"""A number of seconds, or a text such as `5m` and `1h30m`; what is below 0 is for ever."""


def idle_seconds(given: str | float) -> int:
    """Whole seconds, rounded up, at most FOR_EVER."""
    seconds = _seconds(given) if isinstance(given, str) else given
    return FOR_EVER if seconds < 0 else math.ceil(min(seconds, FOR_EVER))


def _seconds(text: str) -> float:
    sign = -1.0 if text.startswith("-") else 1.0
    parts = _PART.findall(text)
    if not parts:
        return float(text)
    return sign * sum(float(number) * _UNITS[unit] for number, unit in parts)
