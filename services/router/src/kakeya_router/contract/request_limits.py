"""What the operator allows of one request, beyond what makes it a sensible one."""

from dataclasses import dataclass

from kakeya_router.contract import validation
from kakeya_shared.errors.tree import AppendTooLong, HistoryFull


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits from the settings of the same names; `max_history_tokens` 0 is no limit."""

    max_append_tokens: int
    max_generate_tokens: int
    max_history_tokens: int
    max_label_bytes: int

    def check_label(self, label: str) -> None:
        """Raises InvalidField."""
        validation.check_text("client_label", label, self.max_label_bytes)

    def check_append(self, num_tokens: int) -> None:
        """Raises AppendTooLong."""
        if num_tokens > self.max_append_tokens:
            raise AppendTooLong(
                f"{num_tokens} tokens in one append; at most {self.max_append_tokens}",
                metadata={"max_append_tokens": str(self.max_append_tokens)},
            )

    def check_generate(self, max_tokens: int) -> None:
        """Raises InvalidField."""
        if max_tokens > self.max_generate_tokens:
            raise validation.invalid("max_tokens", f"must be at most {self.max_generate_tokens}")

    def check_room(self, history_length: int, num_tokens: int) -> None:
        """Raises HistoryFull: a history of this length takes no `num_tokens` more."""
        room = self._room(history_length)
        if room is not None and num_tokens > room:
            raise HistoryFull(
                f"{num_tokens} tokens do not fit: this history may have {self.max_history_tokens}, and has "
                f"{history_length}",
                metadata={"room": str(room)},
            )

    def within_room(self, history_length: int, max_tokens: int) -> int:
        """How many of `max_tokens` may be generated. Raises HistoryFull: none."""
        self.check_room(history_length, 1)
        room = self._room(history_length)
        return max_tokens if room is None else min(max_tokens, room)

    def _room(self, history_length: int) -> int | None:
        return max(0, self.max_history_tokens - history_length) if self.max_history_tokens else None
