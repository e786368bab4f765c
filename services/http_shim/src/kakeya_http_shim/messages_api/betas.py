"""Anthropic's betas: what a client turns on by a header, most of which is nothing that could be turned on here."""

import re
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

IGNORED_BETAS_HEADER: Final = "kakeya-ignored-betas"
_HEADER = "anthropic-beta"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MAX_NAMED = 32
SERVED: Final = (
    "claude-code",
    "context-management",
    "effort",
    "extended-cache-ttl",
    "fine-grained-tool-streaming",
    "interleaved-thinking",
    "messages",
    "mid-conversation-system",
    "model-context-window-exceeded",
    "oauth",
    "output-128k",
    "prompt-caching",
    "prompt-caching-scope",
    "token-counting",
    "token-efficient-tools",
)
"""Those that need nothing more here: their fields are taken, and what they promise is so anyway. Of any date."""


def ignored_betas(scope: Scope) -> dict[str, str]:
    """The header of an answer that names the betas of its request that do nothing here; none where all are served."""
    given = ",".join(Headers(scope=scope).getlist(_HEADER)).split(",")
    names = [name for name in dict.fromkeys(map(str.strip, given)) if _NAME.fullmatch(name) and not _is_served(name)]
    return {IGNORED_BETAS_HEADER: ", ".join(names[:_MAX_NAMED])} if names else {}


def _is_served(beta: str) -> bool:
    """Its name without its date, such as `-2025-05-14` or `-20250219`."""
    return re.sub(r"-\d{4}-?\d{2}-?\d{2}$", "", beta) in SERVED
