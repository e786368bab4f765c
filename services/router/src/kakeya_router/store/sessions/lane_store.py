"""The lanes of sessions: taken from one, given to it, exchanged."""

from dataclasses import dataclass

from kakeya_router.store.connection import is_done
from kakeya_router.store.keys import PoolKeys
from kakeya_router.store.outcomes import LoseLane, MoveSession, OfferLane, ParkSession, ResumeSession, WithdrawLane
from kakeya_router.store.script_calls import in_ms
from kakeya_router.store.servers.server import GENERATION
from kakeya_router.store.session_record import Claim, Epoch, SessionRecord
from kakeya_router.store.sessions.session_store import Answer, SessionStore
from kakeya_router.store.sessions.stored_snapshots import Snapshots, text
from kakeya_router.store.worker_record import WorkerRecord


@dataclass(frozen=True, slots=True)
class Offer:
    """The epoch under which a lane may be opened elsewhere."""

    outcome: OfferLane
    epoch: Epoch = Epoch(0)


class LaneStore(SessionStore):
    """Gives sessions lanes and takes them."""

    async def lose_lane(self, record: SessionRecord, claim: Claim) -> Answer[LoseLane]:
        """Parks a session whose lane is gone, while the operation goes on; its fingerprint, and whether it is exact,
        become as the record says.
        """
        return await self._answer(
            LoseLane,
            record,
            claim=claim,
            fingerprint=record.fingerprint,
            exact=record.exact,
        )

    async def resume(
        self, record: SessionRecord, claim: Claim, worker: WorkerRecord, waiter_id: str
    ) -> Answer[ResumeSession]:
        """Reserves a lane for a parked session; the answer's record has it.

        Args:
            waiter_id: that in the queue; empty: it does not stand there; INTERRUPTED: likewise, of an operation.
        """
        resumed = worker.holding(record)
        return await self._answer(
            ResumeSession,
            resumed,
            claim=claim,
            generation=GENERATION,
            worker_id=resumed.worker_id,
            incarnation=resumed.incarnation,
            address=resumed.address,
            lane_bytes=resumed.reserved_bytes,
            waiter_id=waiter_id,
            may_clear=self._may_clear(),
            fingerprint=resumed.fingerprint,
            exact=resumed.exact,
        )

    async def offer_lane(self, record: SessionRecord, lease_seconds: float, claim: Claim | None = None) -> Offer:
        """Names an epoch for a lane elsewhere; see offer_lane.lua."""
        outcome, epoch = await self._run(
            OfferLane,
            record,
            epoch=record.epoch,
            generation=GENERATION,
            lease_ms=in_ms(lease_seconds),
            claim=claim,
        )
        return Offer(outcome, *map(Epoch, map(int, epoch)))

    async def withdraw_lane(self, record: SessionRecord, epoch: Epoch) -> bool:
        """Ends such an offer; False: there is none."""
        return is_done(await self._outcome(WithdrawLane, record, epoch=epoch))

    async def move(
        self,
        record: SessionRecord,
        there: SessionRecord,
        claim: Claim | None = None,
        snapshots: Snapshots = (),
        snapshot_store: str = "",
    ) -> Answer[MoveSession]:
        """Gives a session another lane, if nothing has happened on it since that was copied; see move_session.lua.

        Args:
            record: as it was before it was copied.
            there: with the other lane, of as many bytes as it says.
            claim: of the operation that runs on it and moves it; None: none does.
            snapshots: that replace those that it has, in that store; none: it keeps these.
        """
        keys = PoolKeys(record.pool)
        return await self._answer(
            MoveSession,
            record,
            (keys.worker(there.worker_id), keys.sessions(there.incarnation), keys.heirs, keys.snapshot_bytes),
            epoch=record.epoch,
            offered_epoch=there.epoch,
            operation_number=record.operation_number,
            worker_id=there.worker_id,
            incarnation=there.incarnation,
            address=there.address,
            lane_bytes=there.reserved_bytes,
            history_length=there.history_length,
            kv_live_bytes=there.kv_live_bytes,
            retained=there.retained,
            fingerprint=there.fingerprint,
            exact=there.exact,
            claim=claim,
            snapshots=text(snapshots),
            snapshot_store=snapshot_store,
        )

    async def park(
        self,
        record: SessionRecord,
        parked_ms: int,
        *,
        by_journal: bool,
        idle_ms: int | None = None,
        wanted_by: str = "",
    ) -> Answer[ParkSession]:
        """Takes a session off its lane, if no operation runs; see park_session.lua.

        Args:
            by_journal: only if its journal has all of its history.
            idle_ms: only if it has been idle for so long, and gives way to the tenant that wants its lane.
        """
        return await self._answer(
            ParkSession,
            record,
            epoch=record.epoch,
            parked_ms=parked_ms,
            may_take_over=self._may_take_over(),
            by_journal=by_journal,
            idle_ms=idle_ms,
            wanted_by=wanted_by,
        )
