"""Writes the enumerations of what the router's Lua scripts answer, from their headers.

python scripts/generate_outcomes.py services/router/src/kakeya_router/store/outcomes.py
"""

import sys
from pathlib import Path

from kakeya_router.store.scripts import scripts

HEADER = '''"""What the Lua scripts answer, as their headers say; generated from them (make outcomes)."""

from enum import StrEnum

'''


def outcomes_module() -> str:
    """The whole module."""
    lines = [
        f'{name} = StrEnum("{name}", "{" ".join(script.outcomes).upper()}")\n'
        for script in scripts().values()
        if script.outcomes
        for name in (script.name.title().replace("_", ""),)
    ]
    return HEADER + "".join(lines)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(outcomes_module())
