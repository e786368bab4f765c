"""What clients write into a system prompt for Anthropic's books, and not for the model.

It changes from request to request, and stands at the very beginning: left in, it would make a new conversation of each
turn. The rules are listed here and in docs/messages.md.
"""

import re
from typing import Final

LINES: Final = ("x-anthropic-billing-header:",)
"""How such lines begin. Claude Code sends one with a version, where it was started and a hash of the conversation."""

_LEADING = re.compile(f"(?:(?:{'|'.join(map(re.escape, LINES))})[^\r\n]*(?:\r?\n|$))+")


def without(text: str) -> str:
    """A text of a system prompt without such lines at its beginning; "" where it is nothing else.

    Further down they are text: someone speaks of them.
    """
    found = _LEADING.match(text)
    return text[found.end() :] if found else text
