"""Sessions in the making: their lanes are reserved and opened, and others branch off from them."""

from kakeya_router.store.keys import PoolKeys
from kakeya_router.store.outcomes import MarkOpen, RenewOpening, ReserveSession, ShareSession, UseSource
from kakeya_router.store.session_record import EMPTY_LANE, Claim, LaneState, PoolName, SessionId, SessionRecord
from kakeya_router.store.sessions.session_changes import UNLIMITED, Limits
from kakeya_router.store.sessions.session_store import Answer, SessionStore

_REQUEST_TTL_MS = 600_000
GIVEN_UP = "-"
"""What no session id begins with."""


class CreationStore(SessionStore):
    """Makes sessions."""

    async def give_up_request(self, pool: PoolName, tenant: str, request_id: str) -> SessionId:
        """From now on the tenant's CreateSession with this request id opens nothing in the pool; see
        give_up_request.lua. Answers with the session that it has made, empty: none.
        """
        key = PoolKeys(pool).request(tenant, request_id)
        made: SessionId = await self._redis.script("give_up_request", [key], request_ttl_ms=_REQUEST_TTL_MS)
        return made

    async def of_request(self, pool: PoolName, tenant: str, request_id: str) -> SessionId | None:
        """The session that the tenant's earlier CreateSession with this request id made; GIVEN_UP and that, where it
        was given up.
        """
        key = PoolKeys(pool).request(tenant, request_id)
        found: SessionId | None = await self._redis.call(lambda redis: redis.get(key))
        return found

    async def free_request(self, pool: PoolName, tenant: str, request_id: str, session_id: SessionId) -> None:
        """Such a CreateSession makes another session, if it has made this one, which is gone."""
        key = PoolKeys(pool).request(tenant, request_id)
        await self._redis.script("free_request", [key], session_id=session_id)

    async def reserve(
        self,
        record: SessionRecord,
        claim: Claim,
        limits: Limits = UNLIMITED,
        waiter_id: str = "",
        *,
        source: SessionRecord | None = None,
        length: int = 0,
        needed: str = "",
        start_length: int = 0,
        tokens_per_minute: int = 0,
    ) -> Answer[ReserveSession]:
        """Reserves a lane for a new session; see reserve_session.lua.

        Args:
            waiter_id: of who waits in the queue.
            source: that it branches off from.
            length: of the history that it begins with then.
            needed: what the source must have (`Past.needed`); empty: whatever that has.
            start_length: history length at which its prefill begins.
            tokens_per_minute: the quota that this is charged to; 0 for none.
        """
        return await self._answer(
            ReserveSession,
            record,
            () if source is None else _source_keys(source),
            claim=claim,
            router=self._holder.router_id,
            lease_ms=self._holder.lane_lease_ms,
            request_ttl_ms=_REQUEST_TTL_MS if record.request_id else 0,
            waiter_id=waiter_id,
            **limits._asdict(),
            may_clear=self._may_clear(),
            start_length=start_length,
            tokens_per_minute=tokens_per_minute,
            length=length,
            needed=needed,
            record=record.to_pairs(),
        )

    async def mark_open(
        self,
        record: SessionRecord,
        claim: Claim,
        sink: int,
        window: int,
        lane: LaneState = EMPTY_LANE,
        source: SessionRecord | None = None,
    ) -> Answer[MarkOpen]:
        """With what the worker chose, and what its lane holds; the answer's record is the open session's.

        Args:
            source: of a fork from lane to lane, as it was before the lane was reserved.
        """
        return await self._answer(
            MarkOpen,
            record,
            () if source is None else _source_keys(source)[:1],
            claim=claim,
            sink=sink,
            window=window,
            history_length=lane.history_length,
            kv_live_bytes=lane.kv_live_bytes,
            retained=lane.retained,
            num_rewinds=None if source is None else source.num_rewinds,
        )

    async def renew_opening(self, record: SessionRecord, claim: Claim) -> RenewOpening:
        return await self._outcome(RenewOpening, record, claim=claim, lease_ms=self._holder.lane_lease_ms)

    async def use_source(
        self, record: SessionRecord, boundary: int | None = None, *, is_reachable: bool | None = None
    ) -> Answer[UseSource]:
        """Looks at a session that another is to branch off from; the answer's record is as of now.

        Args:
            boundary: where it has to end.
            is_reachable: whether it is reachable there without its lane; None: with its lane.
        """
        return await self._answer(
            UseSource,
            record,
            may_take_over=self._may_take_over(),
            boundary=boundary,
            of_history=is_reachable,
            incarnation=record.incarnation,
        )

    async def share(self, record: SessionRecord) -> Answer[ShareSession]:
        return await self._answer(ShareSession, record)


def _source_keys(source: SessionRecord) -> list[str]:
    keys = PoolKeys(source.pool)
    of = source.session_id
    return [keys.session(of), keys.journal(of), keys.heirs, keys.tags(of)]
