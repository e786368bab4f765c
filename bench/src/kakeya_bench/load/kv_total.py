"""What the KV of a level's sessions weighs, by their own word and by their workers'."""

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya import AsyncSession, KakeyaError
from kakeya_bench.conversation import clock
from kakeya_bench.conversation.failure import describe
from kakeya_bench.conversation.workers import FRESH_SECONDS, Workers

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


async def read(sessions: Sequence[AsyncSession], workers: Workers) -> KvTotal:
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
