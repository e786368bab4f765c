"""Sessions that end."""

from kakeya_router.store.connection import is_done
from kakeya_router.store.keys import PoolKeys, pool_of
from kakeya_router.store.outcomes import BeginClose, DeleteSession
from kakeya_router.store.session_record import Claim, PoolName, SessionId, SessionRecord
from kakeya_router.store.sessions.session_changes import Cause
from kakeya_router.store.sessions.session_store import Answer, SessionStore

# As long as the client of a session that has closed itself may take to close it.
_CLOSED_TTL_MS = 60_000


class ClosingStore(SessionStore):
    """Closes sessions."""

    async def begin_close(
        self,
        record: SessionRecord,
        claim: Claim,
        cause: Cause,
        *,
        idle_ms: int = 0,
        wanted_by: str = "",
        limit: int = 0,
        max_parked: int = 0,
        max_bytes: int = 0,
    ) -> Answer[BeginClose]:
        """Claims a session for good.

        Args:
            idle_ms, wanted_by: of Cause.IDLE: how long it must have been idle, and the tenant that wants its lane.
            limit: of Cause.SURPLUS: how many of its group may stay.
            max_parked, max_bytes: of Cause.BOUND: how many parked disposable sessions its pool may keep, and how many
                bytes of snapshots; 0: no limit.
        """
        return await self._answer(
            BeginClose,
            record,
            (PoolKeys(record.pool).snapshot_bytes,),
            claim=claim,
            router=self._holder.router_id,
            lease_ms=self._holder.lane_lease_ms,
            cause=cause,
            idle_ms=idle_ms,
            wanted_by=wanted_by,
            limit=limit,
            max_parked=max_parked,
            max_bytes=max_bytes,
        )

    async def delete(self, record: SessionRecord, claim: Claim, history_length: int) -> bool:
        """`history_length` is the final one; False: another router has claimed it since."""
        keys = PoolKeys(record.pool)
        outcome = await self._outcome(
            DeleteSession,
            record,
            (keys.closed(record.session_id), keys.heirs, keys.snapshot_bytes),
            claim=claim,
            history_length=history_length,
            closed_ms=_CLOSED_TTL_MS,
        )
        return is_done(outcome)

    async def closed(self, session_id: SessionId) -> tuple[int, str] | None:
        """Final history length and tenant of a session that lived for one answer, for a minute; None: not known."""
        key = PoolKeys(pool_of(session_id) or PoolName("")).closed(session_id)
        found = await self._redis.call(lambda redis: redis.get(key))
        if not found:
            return None
        length, _, tenant = found.partition(" ")
        return int(length), tenant
