"""Where an answer stops: texts of the client's, looked for as the answer comes."""

from collections.abc import Sequence


class StopTexts:
    """Gives out text up to the stop text that is complete first; of those that end together, the longest.

    Each character is looked at once for each stop text, however the text is cut.

    Args:
        stops: none of them empty.

    Attributes:
        found: the stop text that was; None so far.

    Raises:
        ValueError: one is empty.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._searches = [_Search(stop) for stop in stops]
        self._held = ""
        self.found: str | None = None

    def push(self, text: str) -> str:
        """The text that is part of no stop text for certain."""
        if self.found is not None:
            return ""
        text, num_seen = self._held + text, len(self._held)
        for end in range(num_seen + 1, len(text) + 1):
            complete = [search.stop for search in self._searches if search.push(text[end - 1])]
            if complete:
                self.found = max(complete, key=len)
                self._held = ""
                return text[: end - len(self.found)]
        num_held = max((search.num_matched for search in self._searches), default=0)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]

    def flush(self) -> str:
        """What was held back, once no more text follows."""
        held, self._held = self._held, ""
        return held


class _Search:
    """Finds one text by Knuth, Morris and Pratt.

    Attributes:
        num_matched: characters that the stop text begins with and the text so far ends with, the most of them.
    """

    def __init__(self, stop: str) -> None:
        if not stop:
            raise ValueError("a stop text is empty")
        self.stop = stop
        self.num_matched = 0
        self._shorter = _borders(stop)

    def push(self, letter: str) -> bool:
        """Whether the stop text is complete."""
        self.num_matched = _matched(self.stop, self._shorter, self.num_matched, letter)
        return self.num_matched == len(self.stop)


def _borders(stop: str) -> list[int]:
    """By a number of its first characters: the length of the longest shorter text these both begin and end with."""
    borders = [0, 0]
    for letter in stop[1:]:
        borders.append(_matched(stop, borders, borders[-1], letter))
    return borders


def _matched(stop: str, borders: Sequence[int], num_matched: int, letter: str) -> int:
    while num_matched and stop[num_matched] != letter:
        num_matched = borders[num_matched]
    return num_matched + (stop[num_matched] == letter)
