"""The tokens that a server without sessions is sent again and again."""

from collections.abc import Sequence


class History:
    """One player's view of the conversation.

    What follows a gap has other positions than before: a cache is of no use for it, or, where a server can rotate keys
    to other positions, that rounds them once more. So tokens are dropped many at a time, and most turns find their
    whole history in the cache.

    Args:
        context: most tokens that a prompt and its answer may have together; None for no limit.
        keep: first tokens that are never dropped.
        drop: tokens that are dropped at a time; more, or as many as there are, where the turn would not fit then.

    Attributes:
        length: tokens of the whole conversation, with those that were dropped.
        tokens: what is left of it.
    """

    def __init__(self, context: int | None = None, *, keep: int = 0, drop: int = 1) -> None:
        self.length = 0
        self.tokens: list[int] = []
        self._context = context
        self._keep = keep
        self._drop = drop

    def hear(self, new_tokens: Sequence[int], max_tokens: int) -> int:
        """Adds the new tokens of a turn, which are never dropped in it; returns how many others were.

        Args:
            max_tokens: of the answer to come. The first `keep` tokens, the new ones and the answer fit the context.
        """
        num_dropped = self._num_to_drop(len(self.tokens) + len(new_tokens) + max_tokens)
        del self.tokens[self._keep : self._keep + num_dropped]
        self.tokens += new_tokens
        self.length += len(new_tokens)
        return num_dropped

    def say(self, answer: Sequence[int]) -> None:
        """Adds the answer."""
        self.tokens += answer
        self.length += len(answer)

    def _num_to_drop(self, num_needed: int) -> int:
        if self._context is None or num_needed <= self._context:
            return 0
        num_blocks = -(-(num_needed - self._context) // self._drop)
        return min(num_blocks * self._drop, len(self.tokens) - self._keep)
