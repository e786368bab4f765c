"""New sessions and forks as seekers of a lane; see `Search`."""

from collections.abc import Awaitable, Callable, Sequence

from kakeya_router.lanes import candidates
from kakeya_router.lanes.search import Refused
from kakeya_router.lanes.wanted import Wanted
from kakeya_router.sessions.opening import Attempt, Opening
from kakeya_router.sessions.sources import Sources
from kakeya_router.store.outcomes import ReserveSession
from kakeya_router.store.session_record import SessionRecord
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_shared.errors.tree import InvalidField, KakeyaError, NoCapacity, NoWorker, OperationRunning


class Creating:
    """Opens a session where a lane is found for it; one for all CreateSession calls."""

    is_interrupted = False
    is_patient = False

    def __init__(self, opening: Opening, sources: Sources) -> None:
        self._opening = opening
        self._sources = sources

    def able(self, wanted: Wanted, workers: Sequence[WorkerRecord]) -> Sequence[WorkerRecord]:
        return list(filter(wanted.fits, workers))

    def is_served(self, wanted: Wanted, workers: Sequence[WorkerRecord]) -> bool:
        return any(map(wanted.is_served_by, workers))

    def none_able(self) -> KakeyaError:
        return candidates.no_worker("the model any more")

    async def take(
        self, wanted: Wanted, worker: WorkerRecord, waiter_id: str, when_reserved: Callable[[], Awaitable[None]]
    ) -> SessionRecord | None:
        """None: an equal request was answered with another session."""
        attempt = Attempt(wanted, worker, waiter_id, when_reserved)
        try:
            return await self._opening.open(attempt)
        except (InvalidField, NoCapacity, NoWorker) as error:
            raise Refused(
                error,
                has_left=attempt.reserved,
                is_overtaken=attempt.overtaken,
                is_away=attempt.outcome is ReserveSession.GONE,
            ) from error

    async def renewed(self, wanted: Wanted, *, is_stranded: bool) -> Wanted:
        """Where its source is on another worker by now, it waits for that one."""
        try:
            return await self._sources.renewed(wanted)
        except OperationRunning:
            # Else it is its turn, and others would wait with it; here maybe another fork has the source resumed.
            if not is_stranded:
                raise
            return wanted
