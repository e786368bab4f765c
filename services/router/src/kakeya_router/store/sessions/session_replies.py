"""What the store of sessions answers."""

from dataclasses import dataclass

from kakeya_router.store.records import SessionRecord
from kakeya_router.tasks import Outcome


class Taken(Outcome):
    """The operation is not its router's any more."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a script answered: an outcome, and the session record or what else it returns with it."""

    outcome: str
    record: SessionRecord | None = None
    rest: tuple[str, ...] = ()

    @property
    def session_id(self) -> str:
        """Of a duplicate."""
        return self.rest[0] if self.rest else ""


@dataclass(frozen=True, slots=True)
class Glance:
    """A session seen without touching it.

    Attributes:
        alive: whether the incarnation that holds its lane is registered.
        busy: whether an operation runs.
        idle_seconds: since the last operation ended; 0 while one runs.
    """

    record: SessionRecord
    alive: bool
    busy: bool
    idle_seconds: float
