"""What a chat says at its start."""

from typing import TYPE_CHECKING

from kakeya import AsyncSession

if TYPE_CHECKING:
    from kakeya.text.chat_tokenizer import ChatTokenizer

SMALL_WINDOW = 64
"""Tokens; a window below this forgets nearly everything between two turns."""


def welcome(session: AsyncSession, tokenizer: "ChatTokenizer", *, wants_pin: bool, num_pinned: int) -> str:
    """Lines on the session, the tokenizer and what is pinned.

    Args:
        wants_pin: whether there is a system prompt that should be pinned.
        num_pinned: tokens of it that are.
    """
    lines = [
        f"session {session.id} on {session.model}: sink {session.sink}, window {session.window}, "
        f"{session.reserved_bytes:,} bytes reserved{', exact' if session.exact else ''}"
        f"{_pinning(tokenizer, num_pinned) if wants_pin else ''}",
        f"tokenizer {tokenizer.name}{'' if tokenizer.has_template else '; no chat template: plain text'}",
    ]
    if num_pinned and (session.window or 0) < SMALL_WINDOW:
        lines.append(
            f"the pinned system prompt leaves a window of {session.window} tokens: nearly everything else will be "
            "forgotten at once; a shorter one, or --no-pin, leaves more"
        )
    return "\n".join([*lines, "/info describes the session, /bye leaves"])


def _pinning(tokenizer: "ChatTokenizer", num_pinned: int) -> str:
    if num_pinned:
        return f"; the system prompt is pinned, {num_pinned} tokens"
    if tokenizer.leaves_out_system:
        return "; the chat template leaves out the system prompt"
    return "; the system prompt is not pinned: the chat template does not begin with it"
