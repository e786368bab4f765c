"""How far a worker is with loading its model, by its log."""

import json
from collections.abc import Sequence
from typing import Any, Final

_COUNTS: Final = {"loading layers": ("loaded", "of"), "converting weights": ("weights", "of_weights")}
"""What a worker says now and then while it loads, and where in that stand how much is done, and of how much."""
_BEGUN: Final = ("reading the weights for their digest",)


def progress(lines: Sequence[str]) -> str:
    """In words, by the end of a log in JSON; "" where its last line is of something else."""
    said = _said(lines[-1]) if lines else {}
    event = str(said.get("event", ""))
    if event in _BEGUN:
        return event
    done, whole = (said.get(name) for name in _COUNTS.get(event, ("", "")))
    if isinstance(done, int) and isinstance(whole, int) and whole > 0:
        return f"{event}: {100 * done // whole} %"
    return ""


def _said(line: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
