"""Writes the enumerations of what the router's Lua scripts answer, from their headers.

python scripts/generate_outcomes.py services/router/src/kakeya_router/store/outcomes.py
"""

import sys
import textwrap
from pathlib import Path

from kakeya_router.store.scripts import Script, scripts

_HEADER = '''"""What the Lua scripts answer, as their headers say; generated from them (make outcomes)."""

from enum import StrEnum

'''
_ALTERNATIVE = '''
# fmt: off
Alternative = (
{}
)
# fmt: on
"""Of the scripts with two: what they were asked for is done, or not."""
'''
_COLUMNS = 120


def outcomes_module() -> str:
    """The whole module."""
    lines = [
        f'{name} = StrEnum("{name}", "{" ".join(script.outcomes).upper()}")\n'
        for script in scripts().values()
        if script.outcomes
        for name in (_class(script),)
    ]
    of_two = [_class(script) for script in scripts().values() if len(script.outcomes) == 2]
    union = textwrap.fill(" | ".join(of_two), _COLUMNS, initial_indent="    ", subsequent_indent="    ")
    return _HEADER + "".join(lines) + _ALTERNATIVE.format(union)


def _class(script: Script) -> str:
    return script.name.title().replace("_", "")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(outcomes_module())
