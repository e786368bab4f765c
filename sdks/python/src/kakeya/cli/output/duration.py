"""Durations as people write and read them: 90s, 15m, 12h, 30d."""

import re
from argparse import ArgumentTypeError

_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_WRITTEN = re.compile(r"([0-9]{1,9})([smhd])")


def parse(text: str) -> int:
    """Seconds. Raises argparse.ArgumentTypeError."""
    written = _WRITTEN.fullmatch(text)
    if written is None or int(written[1]) == 0:
        raise ArgumentTypeError(f"{text!r} is no duration; write 90s, 15m, 12h or 30d")
    return int(written[1]) * _SECONDS[written[2]]


def show(seconds: float) -> str:
    """The two largest units that matter, e.g. "29d 23h", "45s"."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in _SECONDS.items():
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return " ".join(part for part in parts[:2] if part) or "0s"
