"""How many lanes somebody may have in a pool, as scripts take it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a tenant and of one of its keys; 0 is no limit."""

    max_sessions: int = 0
    max_reserved_bytes: int = 0
    key_max_sessions: int = 0

    @property
    def arguments(self) -> tuple[int, int, int]:
        return self.max_sessions, self.max_reserved_bytes, self.key_max_sessions


UNLIMITED = Limits()
