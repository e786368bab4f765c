"""A prompt as it was made of messages or of a text."""

from dataclasses import dataclass, replace
from typing import Literal

Thinking = Literal["not", "perhaps", "inside"]
"""An answer has no thoughts in front, may begin with some, or begins within them."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a session is told before it answers.

    Attributes:
        num_pinned: leading tokens that hold its system messages; they should be kept for ever.
        is_chat: it was rendered from messages.
        text: what it was made of; None where it came as tokens.
        open_text: of the message that the answer goes on with; None where it begins one.
        begins: how the answer begins, where that cannot be told from the tokens.
    """

    token_ids: list[int]
    num_pinned: int = 0
    is_chat: bool = False
    text: str | None = None
    open_text: str | None = None
    begins: Thinking | None = None

    def after(self, num_tokens: int) -> "Prompt":
        """Without so many tokens, which a session has already."""
        return replace(self, token_ids=self.token_ids[num_tokens:], text=None)
