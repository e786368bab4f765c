"""What a model sees of a conversation, in words."""

from kakeya.results import Truncation


def sight(retained: tuple[range, ...], history_length: int) -> str:
    """The parts of the history that are kept; an older router does not say which."""
    if not retained:
        return "what it sees is not said"
    if sum(map(len, retained)) == history_length:
        return "sees all"
    return f"sees {' and '.join(_place(part, history_length) for part in retained)}"


def ranges(retained: tuple[range, ...]) -> str:
    """As indices into the history, the ends left out."""
    return ", ".join(f"{part.start}:{part.stop}" for part in retained)


def _place(part: range, history_length: int) -> str:
    if part.start == 0:
        return f"the first {len(part):,}"
    if part.stop == history_length:
        return f"the last {len(part):,}"
    return ranges((part,))


class Forgetting:
    """Decides when to say that something was forgotten: the first time, and whenever it is a window more.

    Args:
        window: tokens.
        num_pinned: tokens of the system prompt that are kept for ever; 0 where none are.
    """

    def __init__(self, window: int, num_pinned: int) -> None:
        self._window = window
        self._num_pinned = num_pinned
        self._next = 1

    def notice(self, truncated: Truncation | None) -> str | None:
        """What to say before an answer; None where nothing is due.

        Args:
            truncated: as the generation says it; None: the model sees all.
        """
        if truncated is None or truncated.num_dropped_tokens < self._next:
            return None
        num_forgotten = truncated.num_dropped_tokens
        self._next = num_forgotten + self._window
        seen = self._all_seen(truncated) if truncated.retained else "what the model still sees is not said"
        return f"[forgotten: {num_forgotten:,} of the oldest tokens, to keep within the session's memory; {seen}]"

    def _all_seen(self, truncated: Truncation) -> str:
        history_length = truncated.num_dropped_tokens + sum(map(len, truncated.retained))
        seen = " and ".join(self._seen(part, history_length) for part in truncated.retained)
        return f"the model still sees {seen} of {history_length:,}"

    def _seen(self, part: range, history_length: int) -> str:
        if 0 < self._num_pinned <= len(part) and part.start == 0:
            return f"the pinned system prompt ({_place(part, history_length)} tokens)"
        return f"{_place(part, history_length)} tokens"
