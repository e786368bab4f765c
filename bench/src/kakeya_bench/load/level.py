"""What was found with so many sessions at once, and what their KV weighs, by their own word and by their workers'."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from kakeya import AsyncSession, KakeyaError
from kakeya_bench.conversation import clock
from kakeya_bench.conversation.failure import describe
from kakeya_bench.conversation.runtime import FRESH_SECONDS, Workers
from kakeya_bench.conversation.turn import TimedTurn
from kakeya_bench.load.settings import LoadSettings

PATIENCE_SECONDS = 5.0
"""Five heartbeats of a worker: one that is silent for so long has nothing to say of now."""


@dataclass(frozen=True, slots=True)
class KvTotal:
    """Live bytes of KV, while no turn ran.

    Attributes:
        sessions_bytes: the sum of what each session says; None where one does not.
        workers_bytes: the sum of what their workers hold for all the sessions that they have, other people's too; None
            where the router does not say.
        why_not: why something is not known.
    """

    sessions_bytes: int | None
    workers_bytes: int | None
    why_not: str = ""


async def kv_total(sessions: Sequence[AsyncSession], workers: Workers) -> KvTotal:
    """Asks the sessions, and waits for heartbeats of their workers that are newer than the call."""
    since = clock.now()
    try:
        infos = [await session.info() for session in sessions]
    except KakeyaError as error:
        return KvTotal(None, None, f"a session does not say: {describe(error)}")
    reported = {name: await _reported(name, workers, since) for name in sorted({info.worker for info in infos})}
    missing = [name for name, number in reported.items() if number is None]
    return KvTotal(
        sessions_bytes=sum(info.kv_live_bytes for info in infos),
        workers_bytes=None if missing else sum(filter(None, reported.values())),
        why_not=workers.why_not or "; ".join(f"worker {name} does not say" for name in missing),
    )


async def _reported(worker_id: str, workers: Workers, since: float) -> int | None:
    """A worker's own sum as of a heartbeat after `since` (by `clock.now`); None where there is none in time."""
    while (status := await workers.find(worker_id)) is not None:
        passed_seconds = clock.now() - since
        if status.last_heartbeat_age_seconds < passed_seconds:
            return status.reported_kv_live_bytes
        if passed_seconds > PATIENCE_SECONDS:
            return None
        await clock.sleep(FRESH_SECONDS)
    return None


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
