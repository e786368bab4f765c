"""What was found with so many sessions at once."""

from dataclasses import dataclass, field
from enum import StrEnum

from kakeya_bench.load.kv_total import KvTotal
from kakeya_bench.load.settings import LoadSettings
from kakeya_bench.load.timed_turn import TimedTurn


class LevelState(StrEnum):
    """How far a level came."""

    COMPLETE = "complete"
    REFUSED = "refused"
    """Not one session got in."""
    BROKEN_OFF = "broken_off"
    """By a signal, or since its sessions could not be opened; so is each one that has not come to its end."""


@dataclass
class Level:
    """A stage of the sweep, as far as it is.

    Attributes:
        num_sessions: that were asked for.
        num_opened: that got in.
        refusal: why the next one did not; "" where all did.
        turns: all that came to an end, those of the warm-up too, in the order of their ends.
        measured_seconds: from the end of the warm-up to the end of the last turn, and at least the duration; as far as
            it came where it was broken off.
        kv: what the sessions weighed in the end; None where it did not come so far.
        not_closed: why sessions stay open until the router's TTL, of each that does.
    """

    num_sessions: int
    num_opened: int = 0
    refusal: str = ""
    state: LevelState = LevelState.BROKEN_OFF
    turns: list[TimedTurn] = field(default_factory=list)
    measured_seconds: float = 0.0
    kv: KvTotal | None = None
    not_closed: list[str] = field(default_factory=list)

    @property
    def counted(self) -> list[TimedTurn]:
        """The turns that began in the measured period."""
        return [turn for turn in self.turns if not turn.is_warm_up]

    @property
    def is_full(self) -> bool:
        """Whether all sessions got in."""
        return self.num_opened == self.num_sessions

    def share_in_time(self, settings: LoadSettings) -> float | None:
        """The share of the turns that met both limits; None where no turn counts."""
        turns = self.counted
        return sum(map(settings.is_in_time, turns)) / len(turns) if turns else None
