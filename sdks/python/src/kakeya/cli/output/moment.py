"""Moments, Unix time in seconds, as programs and people read them."""

import math
from datetime import UTC, datetime

from kakeya.cli.output import duration


def iso(moment: float) -> str | None:
    """ISO 8601 in UTC, whole seconds; None for 0, which is never."""
    return f"{datetime.fromtimestamp(int(moment), UTC):%Y-%m-%dT%H:%M:%SZ}" if moment else None


def ago(moment: float, now: float) -> str:
    """E.g. "3d 4h ago"."""
    return f"{duration.show(now - moment)} ago"


def until(moment: float, now: float) -> str:
    """E.g. "in 29d 23h", "never", "2h 5m ago"."""
    if not moment:
        return "never"
    return f"in {duration.show(math.ceil(moment - now))}" if moment > now else ago(moment, now)
