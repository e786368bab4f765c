"""Why a process ended, from what it said last."""

import re
from collections.abc import Sequence

_NUM_LINES = 20
# Of our commands and of logs in JSON; of Python, whose tracebacks end so; of Redis, which marks with # what it thinks
# weighty, its greeting and its advice included.
_ERROR = re.compile(
    r": error: "
    r"|\"level\": \"(error|critical)\""
    r"|^[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)(:|$)"
    r"|^\d+:[A-Z] .* # (?!WARNING|Warning|oO0|Redis version|Configuration loaded|Server initialized|User requested)"
)
_WARNING = re.compile(r"warn(ing)?\b", re.IGNORECASE)


def last_words(lines: Sequence[str]) -> str:
    """The last error; where there is none the last line that is no warning; else the last one, or "nothing"."""
    said = [line for line in reversed(lines) if line.strip()][:_NUM_LINES]
    errors = (line for line in said if _ERROR.search(line))
    others = (line for line in said if not _WARNING.search(line))
    return next(errors, "") or next(others, "") or next(iter(said), "nothing")
