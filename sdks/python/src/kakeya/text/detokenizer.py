"""Text from tokens as they come, in whole characters."""

from collections.abc import Callable

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # what decoders make of a byte that is none of a whole character
_MOST_UNFINISHED = 3
"""Tokens that may hold the beginning of one character: it has four bytes at most, and a token has one at least."""


class Detokenizer:
    """Gives out text once its last character is whole, or can no longer become so.

    A decoder looks at a token's neighbours (spaces, bytes of one character), so each token is decoded together
    with the ones since the last whole character and, as context, the ones before that. Both are a few tokens, however
    long the text gets.

    Args:
        decode: text of a list of token ids.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._context: list[int] = []  # given out entirely
        self._pending: list[int] = []
        self._text = ""  # of both
        self._num_given = 0  # characters of it that were given out

    def push(self, token_id: int) -> str:
        """The text that is certain now; "" in the middle of a character."""
        before = self._text
        self._text = self._decode([*self._context, *self._pending, token_id])
        if self._text == before and not self._decode([token_id, token_id]):
            return ""  # has no text wherever it stands, as special tokens have none: not kept
        self._pending.append(token_id)
        new = self._give(_num_unfinished(self._text))
        if self._num_given == len(self._text):
            self._go_on_after(self._pending)
        elif len(self._pending) > _MOST_UNFINISHED:
            new += self._give_up_oldest()
        return new

    def flush(self) -> str:
        """What is left: replacement characters, if the tokens ended within a character."""
        return self._text[self._num_given :]

    def _give(self, num_kept: int) -> str:
        """The text but for its last characters, as far as it was not given out yet."""
        start = self._num_given
        self._num_given = max(start, len(self._text) - num_kept)
        return self._text[start : self._num_given]

    def _give_up_oldest(self) -> str:
        """The text up to what the latest tokens may still make whole: what the oldest one began will never be."""
        latest = self._pending[-_MOST_UNFINISHED:]
        new = self._give(min(_num_unfinished(self._text), _num_unfinished(self._decode(latest))))
        num_left = len(self._text) - self._num_given  # less than could be kept where a part was given out before
        if num_left:
            self._context, self._pending = [], latest
            self._text = self._decode(latest)
            self._num_given = len(self._text) - num_left
        else:
            self._go_on_after(latest)
        return new

    def _go_on_after(self, token_ids: list[int]) -> None:
        """Keeps tokens that were given out entirely, as context of the next."""
        self._context, self._pending = token_ids, []
        self._text = self._decode(token_ids)
        self._num_given = len(self._text)


def _num_unfinished(text: str) -> int:
    """Replacement characters at its end."""
    return len(text) - len(text.rstrip(_REPLACEMENT))
