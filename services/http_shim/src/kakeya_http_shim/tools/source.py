"""Text that comes in pieces, read letter by letter by code that need not know where the pieces end."""

from collections.abc import Generator, Sequence
from re import Pattern
from typing import TypeVar

_T = TypeVar("_T")

Reading = Generator[None, None, _T]
"""Reads from a source; it yields where it has to wait for more text, and returns what it has read."""


class Malformed(Exception):  # of the text, not of the program
    """What follows is not what the syntax has there."""


class Cut(Exception):  # as above
    """The text ends in the middle."""


class Source:
    """Text as it comes. Each letter is taken once and never given back, so that reading takes linear time.

    What a reading does depends on the letters only, never on the pieces that they came in: it waits where a piece ends.
    """

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._is_complete = False
        self._kept: list[str] | None = None

    def feed(self, text: str) -> None:
        """Adds text to the end.

        Raises:
            ValueError: the text was said to be complete.
        """
        if self._is_complete:
            raise ValueError("the text is complete")
        self._text, self._at = self._text[self._at :] + text, 0

    def complete(self) -> None:
        """No more text follows."""
        self._is_complete = True

    @property
    def is_keeping(self) -> bool:
        """Whether what is taken is kept."""
        return self._kept is not None

    def keep(self, taken: str = "") -> None:
        """From here on what is taken is kept, behind this, which was taken before, until it is let go."""
        self._kept = [taken]

    @property
    def kept(self) -> str:
        """What was taken since `keep`, so far."""
        return "".join(self._kept or ())

    def let_go(self) -> str:
        """What was taken since `keep`."""
        kept, self._kept = self._kept, None
        return "".join(kept or ())

    def peek(self) -> Reading[str]:
        """The next letter, which stays; empty at the end."""
        while self._at == len(self._text):
            if self._is_complete:
                return ""
            yield
        return self._text[self._at]

    def need(self) -> Reading[str]:
        """The next letter, which stays.

        Raises:
            Cut: there is none.
        """
        letter = yield from self.peek()
        if not letter:
            raise Cut
        return letter

    def take(self) -> str:
        """The letter that was looked at."""
        return self._taken(self._at + 1)

    def some(self, pattern: Pattern[str]) -> str:
        """What of the text that is there is like the pattern; the rest of a longer run may follow."""
        match = pattern.match(self._text, self._at)
        return self._taken(match.end()) if match else ""

    def run(self, pattern: Pattern[str]) -> Reading[str]:
        """All that follows and is like the pattern, which is one of single letters, repeated."""
        pieces = []
        while (yield from self.peek()):
            piece = self.some(pattern)
            if not piece:
                break
            pieces.append(piece)
        return "".join(pieces)

    def one_of(self, texts: Sequence[str]) -> Reading[tuple[str, bool]]:
        """One of these texts, or the longest beginning of one, which is taken, too; and whether it is whole.

        None of them begins with another one.
        """
        taken = ""
        while True:
            if taken in texts:
                return taken, True
            letter = yield from self.peek()
            if not letter or not any(text.startswith(taken + letter) for text in texts):
                return taken, False
            taken += self.take()

    def expect(self, text: str) -> Reading[None]:
        """Takes exactly this text.

        Raises:
            Malformed: something else follows.
            Cut: the text ends before.
        """
        for letter in text:
            if (yield from self.need()) != letter:
                raise Malformed
            self.take()

    def _taken(self, end: int) -> str:
        taken, self._at = self._text[self._at : end], end
        if self._kept is not None:
            self._kept.append(taken)
        return taken
