"""Settings that many tests ask for alike: to read flags and environment takes 10 to 40 ms each time."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_read: dict[tuple[Any, ...], Any] = {}


def read_once(reading: Callable[..., T], *flags: str, **fields: Any) -> T:
    """`reading([*flags], **fields)`, as long as the environment is the same. What it returns is not to be changed."""
    environment = {name: value for name, value in os.environ.items() if name.startswith("KAKEYA_")}
    key = (reading, flags, *sorted(fields.items()), *sorted(environment.items()))
    if key not in _read:
        _read[key] = reading(list(flags), **fields) if flags else reading(**fields)
    value: T = _read[key]
    return value
