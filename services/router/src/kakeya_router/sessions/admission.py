"""Who gets a lane, and what happens to those who find none: `--admission`."""

from collections.abc import Sequence

from kakeya_router.lanes import candidates
from kakeya_router.lanes.wanted import Wanted
from kakeya_router.sessions.opening import Attempt, Opening
from kakeya_router.sessions.waiting import Waiting
from kakeya_router.store.records import SessionRecord, WorkerRecord
from kakeya_router.workers import placement
from kakeya_router.workers.placement import Placement
from kakeya_shared.errors.tree import InvalidField, KakeyaError, NoCapacity, NoWorker


class Admission:
    """Admits new sessions.

    Args:
        waiting: of those who find no room; None: they are refused.
    """

    def __init__(self, opening: Opening, placement: Placement, waiting: Waiting | None) -> None:
        self._opening = opening
        self._placement = placement
        self._waiting = waiting

    async def admit(self, wanted: Wanted, fitting: Sequence[WorkerRecord]) -> SessionRecord | None:
        """Opens a session on one of the workers that fit, at once or when its turn comes.

        Returns:
            The record of the open session; None when another call with the request id made one.

        Raises:
            InvalidField: no worker can hold it.
            NoCapacity: none has room, and nobody waits.
            NoWorker: none answers.
            QuotaExceeded, StoreUnavailable, and what `Waiting.wait` raises.
        """
        refused: dict[str, KakeyaError] = {}
        try:
            return await self._try_all(wanted, fitting, refused)
        except NoCapacity:
            if self._waiting is None:
                raise
        impossible = {name: refusal for name, refusal in refused.items() if isinstance(refusal, InvalidField)}
        return await self._waiting.wait(wanted, fitting, impossible)

    async def _try_all(
        self, wanted: Wanted, fitting: Sequence[WorkerRecord], refused: dict[str, KakeyaError]
    ) -> SessionRecord | None:
        """Tries all workers with room; adds what each that did not take it said, by incarnation."""
        for worker in fitting:
            if not worker.has_room:
                refused[worker.incarnation] = candidates.no_capacity()
        for worker in placement.order_for(wanted.fingerprint, self._placement, fitting):
            try:
                return await self._opening.open(Attempt(wanted, worker))
            except (InvalidField, NoCapacity, NoWorker) as refusal:
                refused[worker.incarnation] = refusal
        raise candidates.verdict(list(refused.values()))
