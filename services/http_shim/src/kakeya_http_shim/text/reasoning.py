"""A model's thoughts told apart from its answer."""

from enum import Enum
from typing import Final

TAGS: Final = ("<think>", "</think>")


class _Place(Enum):
    START = 0
    THOUGHT = 1
    ANSWER = 2


class ReasoningSplit:
    """Splits the thoughts between <think> and </think> off, where an answer begins with them.

    The tags and the line feeds that follow either of them directly are dropped; white space before the first tag counts
    as thought. No other text is lost. Tags further on are part of the answer.

    Args:
        enabled: whether the model is one that thinks; all is the answer's if not.
        starts_inside: the prompt ends with the first tag.
        tags: before and behind the thoughts, each without its first letter further on.
        answer_begins: what ends the thoughts, too, and is part of the answer: models forget the last tag before a call.
    """

    def __init__(
        self, enabled: bool, starts_inside: bool, tags: tuple[str, str] = TAGS, answer_begins: str | None = None
    ) -> None:
        self._open, self._close = tags
        self._ends = (self._close, answer_begins) if answer_begins else (self._close,)
        self._place = _Place.ANSWER if not enabled else _Place.THOUGHT if starts_inside else _Place.START
        self._drops_line_feeds = self._place is _Place.THOUGHT
        self._held = ""  # may still become a tag
        self._blank = ""  # white space at the start

    @property
    def is_within(self) -> bool:
        """Whether the thoughts have begun and not ended, as far as that is certain."""
        return self._place is _Place.THOUGHT

    @property
    def num_held(self) -> int:
        """Characters that came in and of which nothing is certain yet."""
        return len(self._blank) + len(self._held)

    def push(self, text: str) -> tuple[str, str]:
        """The thought and the answer in it, as far as that is certain."""
        thought = answer = ""
        text, self._held = self._held + text, ""
        if self._place is _Place.START:
            thought, text = self._start(text)
        if self._place is _Place.THOUGHT:
            more, text = self._think(text)
            thought += more
        if self._place is _Place.ANSWER:
            answer = self._without_line_feeds(text)
        return thought, answer

    def flush(self) -> tuple[str, str]:
        """What was held back, once no more text follows."""
        held = self._blank + self._held
        self._blank = self._held = ""
        return (held, "") if self._place is _Place.THOUGHT else ("", held)

    def _start(self, text: str) -> tuple[str, str]:
        """The white space before the first tag, and what follows that; or nothing, and what is no tag after all."""
        stripped = text.lstrip()
        self._blank += text[: len(text) - len(stripped)]
        if self._open.startswith(stripped) and stripped != self._open:
            self._held = stripped
            return "", ""
        blank, self._blank = self._blank, ""
        if not stripped.startswith(self._open):
            self._place = _Place.ANSWER
            return "", blank + stripped
        self._place, self._drops_line_feeds = _Place.THOUGHT, True
        return blank, stripped.removeprefix(self._open)

    def _think(self, text: str) -> tuple[str, str]:
        """The thought, and what follows its tag."""
        text = self._without_line_feeds(text)
        found = [at for end in self._ends if (at := text.find(end)) >= 0]
        if found:
            self._place, self._drops_line_feeds = _Place.ANSWER, True
            at = min(found)
            return text[:at], text[at:].removeprefix(self._close)
        num_held = max(_num_begun(text, end) for end in self._ends)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held], ""

    def _without_line_feeds(self, text: str) -> str:
        if self._drops_line_feeds:
            text = text.lstrip("\n")
            self._drops_line_feeds = not text
        return text


def _num_begun(text: str, end: str) -> int:
    """The letters of `end` that the text ends with, fewer than all."""
    return next(n for n in range(len(end) - 1, -1, -1) if text.endswith(end[:n]))
