"""What `make bench-engine` measures; known to every contestant's process, in whichever environment that runs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

DECODE, PREFILL = "decode", "prefill"
SMALL_WINDOW = 64


@dataclass(frozen=True)
class Case:
    """One thing to time.

    Attributes:
        kind: DECODE or PREFILL.
        number: of sessions that decode one token each, or of tokens that one session is given.
        window: keys that a token sees in a full session, sinks included.
    """

    kind: str
    number: int
    window: int

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Case":
        """From what `fields` returned."""
        return cls(**fields)

    @property
    def fields(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @property
    def name(self) -> str:
        """E.g. decode_8, prefill_64_w2048."""
        return f"{self.kind}_{self.number}" + (f"_w{self.window}" if self.window != SMALL_WINDOW else "")

    @property
    def num_sessions(self) -> int:
        return self.number if self.kind == DECODE else 1

    @property
    def num_new_tokens(self) -> int:
        """Of each session."""
        return self.number if self.kind == PREFILL else 1

    @property
    def num_held_tokens(self) -> int:
        """What a session of an engine without a window holds before: with the last new token it sees `window` keys.

        A prefill longer than the window begins with nothing.
        """
        return max(0, self.window - self.num_new_tokens)
