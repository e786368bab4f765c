"""What the latest answer of a session took, as its record says it: four numbers, and when it ended."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class LastTurn:
    """One answer that came to its end.

    Attributes:
        prefill_seconds: of all that was appended since the answer before.
        first_token_seconds: from the call's begin to the first token; 0: there was none.
        total_seconds: from the call's begin to its end.
        num_tokens: of the answer.
        ended_ms: by Redis's clock, which writes it; 0: not written yet.
    """

    prefill_seconds: float
    first_token_seconds: float
    total_seconds: float
    num_tokens: int
    ended_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """None where no answer has ended."""
        if not text:
            return None
        prefill, first_token, total, num_tokens, ended_ms = text.split(" ")
        return cls(float(prefill), float(first_token), float(total), int(num_tokens), int(ended_ms))

    def text(self) -> str:
        """The reverse of `parse`, without its end."""
        times = (self.prefill_seconds, self.first_token_seconds, self.total_seconds)
        return " ".join([*(f"{seconds:.6f}" for seconds in times), str(self.num_tokens)])
