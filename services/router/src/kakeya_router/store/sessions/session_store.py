"""Sessions and their operations in Redis; each change is one script."""

import json
from collections.abc import Sequence
from typing import Any

from kakeya_router.store.connection import Argument, RedisConnection
from kakeya_router.store.keys import PoolKeys, pool_of
from kakeya_router.store.records import SessionRecord, WorkerRecord
from kakeya_router.store.sessions.limits import UNLIMITED, Limits
from kakeya_router.store.sessions.packed_tokens import BYTES_PER_TOKEN, pack, unpack
from kakeya_router.store.sessions.session_changes import Cause, Intent, LaneAtRest
from kakeya_router.store.sessions.session_lists import Retention, SessionLists
from kakeya_router.store.sessions.session_replies import Glance, Reply
from kakeya_router.store.sessions.stored_snapshots import Snapshots, text

_REQUEST_TTL_MS = 600_000
# As long as the client of a session that has closed itself may take to close it.
_CLOSED_TTL_MS = 60_000
GIVEN_UP = "-"
"""What no session id begins with."""


class SessionStore:
    """All methods raise StoreUnavailable.

    Args:
        router_id: names this router in operation records.
        operation_lease_seconds: how long an operation stays its router's without a renewal.
        lane_lease_seconds: how long opening or closing a session stays its router's; it is not renewed, so it
            must outlast the worker's call.
        grace_seconds: after an outage of Redis no lapsed operation is taken over for so long; its router could
            not renew it.
        waiter_grace_seconds: the same for waiters; see `QueueStore`.

    Attributes:
        lists: what concerns many sessions.
    """

    def __init__(
        self,
        redis: RedisConnection,
        router_id: str,
        *,
        operation_lease_seconds: float,
        lane_lease_seconds: float,
        grace_seconds: float,
        waiter_grace_seconds: float = 0,
    ) -> None:
        self._redis = redis
        self._router_id = router_id
        self._lease_ms = round(operation_lease_seconds * 1000)
        self._lane_lease_ms = round(lane_lease_seconds * 1000)
        self._grace_seconds = grace_seconds
        self._waiter_grace_seconds = waiter_grace_seconds
        self.lists = SessionLists(redis)

    async def get(self, session_id: str) -> SessionRecord | None:
        pool = pool_of(session_id)
        if pool is None:
            return None
        key = PoolKeys(pool).session(session_id)
        values = await self._redis.call(lambda redis: redis.hgetall(key))
        return SessionRecord.from_hash(values) if values else None

    async def glance(self, session_id: str) -> Glance | None:
        record = await self.get(session_id)
        if record is None:
            return None
        keys = PoolKeys(record.pool)

        async def read(batch: Any) -> None:
            batch.redis.hget(keys.worker(record.worker_id), "incarnation")
            batch.redis.hget(keys.operation(session_id), "lease_until_ms")
            batch.redis.time()

        incarnation, lease_until_ms, (seconds, microseconds) = await self._redis.pipeline(read)
        now_ms = seconds * 1000 + microseconds // 1000
        busy = lease_until_ms is not None and int(lease_until_ms) > now_ms
        idle_seconds = 0.0 if busy else max(0, now_ms - record.idle_since_ms) / 1000
        return Glance(record, incarnation == record.incarnation, busy, idle_seconds)

    async def give_up_request(self, pool: str, tenant: str, request_id: str) -> str:
        """From now on the tenant's CreateSession with this request id opens nothing in the pool; see
        give_up_request.lua. Answers with the session that it has made, empty: none.
        """
        key = PoolKeys(pool).request(tenant, request_id)
        made: str = await self._redis.script("give_up_request", [key], (_REQUEST_TTL_MS,))
        return made

    async def of_request(self, pool: str, tenant: str, request_id: str) -> str | None:
        """The session that the tenant's earlier CreateSession with this request id made; GIVEN_UP and that, where it
        was given up.
        """
        key = PoolKeys(pool).request(tenant, request_id)
        found: str | None = await self._redis.call(lambda redis: redis.get(key))
        return found

    async def reserve(
        self,
        record: SessionRecord,
        claim: str,
        limits: Limits = UNLIMITED,
        waiter_id: str = "",
        *,
        source: SessionRecord | None = None,
        length: int = 0,
        needed: str = "",
        start_length: int = 0,
        tokens_per_minute: int = 0,
    ) -> Reply:
        """Reserves a lane for a new session; see reserve_session.lua.

        Args:
            waiter_id: of who stands in the line.
            source: that it branches off from.
            length: of the history that it begins with then.
            needed: what the source must have (`Past.needed`); empty: whatever that has.
            start_length: history length at which its prefill begins.
            tokens_per_minute: the quota that this is charged to; 0 for none.
        """
        return await self._run(
            "reserve_session",
            record,
            claim,
            self._router_id,
            self._lane_lease_ms,
            _REQUEST_TTL_MS if record.request_id else 0,
            waiter_id,
            *limits.arguments,
            int(self._redis.answers_for(self._waiter_grace_seconds)),
            start_length,
            tokens_per_minute,
            length,
            needed,
            *record.to_hash(),
            more_keys=() if source is None else self._source_keys(source),
        )

    @staticmethod
    def _source_keys(source: SessionRecord) -> list[str]:
        keys = PoolKeys(source.pool)
        return [keys.session(source.session_id), keys.journal(source.session_id), keys.heirs]

    async def mark_open(
        self,
        record: SessionRecord,
        claim: str,
        sink: int,
        window: int,
        *,
        history_length: int = 0,
        kv_live_bytes: int = 0,
        retained: str = "",
        source: SessionRecord | None = None,
    ) -> Reply:
        """With what the worker chose, and what its lane holds; the reply's record is the open session's.

        Args:
            source: of a fork from lane to lane, as it was before the lane was reserved.
        """
        return await self._run(
            "mark_open",
            record,
            claim,
            sink,
            window,
            history_length,
            kv_live_bytes,
            retained,
            "" if source is None else source.num_rewinds,
            more_keys=() if source is None else (PoolKeys(source.pool).session(source.session_id),),
        )

    async def renew_opening(self, record: SessionRecord, claim: str) -> Reply:
        return await self._run("renew_opening", record, claim, self._lane_lease_ms)

    async def use_source(
        self, record: SessionRecord, boundary: int | None = None, *, is_reachable: bool | None = None
    ) -> Reply:
        """Looks at a session that another is to branch off from; the reply's record is as of now.

        Args:
            boundary: where it has to end.
            is_reachable: whether it can be had there without its lane; None: with its lane.
        """
        may_take_over = int(self._redis.answers_for(self._grace_seconds))
        end = "" if boundary is None else str(boundary)
        of_history = "" if is_reachable is None else int(is_reachable)
        return await self._run("use_source", record, may_take_over, end, of_history, record.incarnation)

    async def past(self, record: SessionRecord, length: int) -> tuple[SessionRecord, bytes, int | None] | None:
        """A session, the packed tokens before a length that its journal holds, and the digest of its history there, all
        as of one moment. None: that is not known; of all three: it is gone.
        """
        flat, tokens, digest = await self._redis.script_bytes("read_past", record.keys, (record.session_id, length))
        fields = iter([text.decode() for text in flat])
        values = dict(zip(fields, fields, strict=True))
        return (SessionRecord.from_hash(values), tokens, int(digest, 16) if digest else None) if values else None

    async def share(self, record: SessionRecord) -> Reply:
        return await self._run("share_session", record)

    async def begin_operation(
        self, record: SessionRecord, claim: str, intent: Intent, tokens_per_minute: int = 0
    ) -> Reply:
        """The reply's record is as of the begin; `tokens_per_minute` is the tenant's quota, 0 for none."""
        return await self._run(
            "begin_operation",
            record,
            claim,
            intent.kind,
            self._router_id,
            self._lease_ms,
            int(self._redis.answers_for(self._grace_seconds)),
            json.dumps(dict(intent.parameters)),
            intent.num_tokens,
            intent.digest,
            tokens_per_minute,
            intent.seed,
            intent.op_id,
            int(intent.may_begin),
            record.incarnation,
        )

    async def renew_operation(self, record: SessionRecord, claim: str) -> Reply:
        return await self._run("renew_operation", record, claim, self._lease_ms)

    async def extend_journal(
        self, record: SessionRecord, claim: str, start: int, token_ids: Sequence[int], max_tokens: int
    ) -> Reply:
        """Adds tokens to the history, of which the first has the index `start`; see extend_journal.lua.

        Args:
            max_tokens: the oldest beyond so many leave the journal.
        """
        return await self._run("extend_journal", record, claim, record.epoch, start, pack(token_ids), max_tokens)

    async def retract(self, record: SessionRecord, claim: str, length: int) -> Reply:
        """Takes the last tokens out of the history again, down to a length; see retract_journal.lua."""
        return await self._run("retract_journal", record, claim, record.epoch, length)

    async def journal(self, record: SessionRecord, start: int, end: int) -> list[int]:
        """Tokens start..end-1 of a history; none where the journal does not reach back to the first."""
        keys = PoolKeys(record.pool)
        key = keys.journal(record.session_id)
        first, now_first = -1, record.journal_start
        while now_first != first:  # it may be trimmed at any time
            first = now_first
            packed = await self._redis.read_bytes(
                key, BYTES_PER_TOKEN * max(0, start - first), BYTES_PER_TOKEN * max(0, end - first)
            )
            field = await self._redis.call(lambda redis: redis.hget(keys.session(record.session_id), "journal_start"))
            now_first = int(field or 0)
        return unpack(packed) if start >= first else []

    async def end_operation(self, record: SessionRecord, claim: str, end: LaneAtRest, *, closes: bool = False) -> Reply:
        """`closes`: a session that lives for one answer ends with this one, and is claimed as `begin_close` does."""
        return await self._run(
            "end_operation",
            record,
            claim,
            record.epoch,
            end.history_length,
            end.kv_live_bytes,
            end.retained,
            end.journal_length,
            pack(end.token_ids),
            int(closes),
            self._router_id,
            self._lane_lease_ms,
            end.num_rewinds,
            _digest(end.history_digest),
        )

    async def release_operation(self, record: SessionRecord, claim: str) -> Reply:
        return await self._run("release_operation", record, claim)

    async def fail(self, record: SessionRecord, claim: str, invariant: str) -> Reply:
        """`invariant` is "inv1" or "inv2"."""
        return await self._run("fail_session", record, claim, f"{invariant}_violations")

    async def lose(
        self,
        record: SessionRecord,
        claim: str,
        retention: Retention,
        start: int,
        token_ids: Sequence[int],
        *,
        for_good: bool = False,
    ) -> Reply:
        """Ends an operation whose lane is gone; `token_ids`, from the history index `start` on, are in the history.

        Args:
            for_good: it is known that the session cannot be had again.
        """
        lost_ms, parked_ms = retention.lost_ms, retention.parked_ms
        return await self._run(
            "lose_session", record, claim, lost_ms, parked_ms, start, pack(token_ids), "", int(for_good)
        )

    async def unseat(self, record: SessionRecord, claim: str) -> Reply:
        """Parks a session whose lane is gone, while the operation goes on; its fingerprint, and whether it is exact,
        become as the record says.
        """
        return await self._run("unseat_session", record, claim, record.fingerprint, int(record.exact))

    async def seat(self, record: SessionRecord, claim: str, worker: WorkerRecord, waiter_id: str) -> Reply:
        """Reserves a lane for a parked session; the reply's record has it.

        Args:
            waiter_id: that in the line; empty: it does not stand there; UNQUEUED: it does not have to.
        """
        seated = record.on(worker)
        return await self._run(
            "seat_session",
            seated,
            claim,
            seated.worker_id,
            seated.incarnation,
            seated.address,
            seated.reserved_bytes,
            waiter_id,
            int(self._redis.answers_for(self._waiter_grace_seconds)),
            seated.fingerprint,
            int(seated.exact),
        )

    async def offer_lane(self, record: SessionRecord, lease_seconds: float, claim: str = "") -> Reply:
        """Names an epoch for a lane elsewhere (`rest`); see offer_lane.lua."""
        return await self._run("offer_lane", record, record.epoch, round(lease_seconds * 1000), claim)

    async def withdraw_lane(self, record: SessionRecord, epoch: int) -> Reply:
        """Ends such an offer."""
        return await self._run("withdraw_lane", record, epoch)

    async def move(
        self,
        record: SessionRecord,
        there: SessionRecord,
        claim: str = "",
        snapshots: Snapshots = (),
        snapshot_store: str = "",
    ) -> Reply:
        """Gives a session another lane, if nothing has happened on it since that was copied; see move_session.lua.

        Args:
            record: as it was before it was copied.
            there: with the other lane, of as many bytes as it says.
            claim: of the operation that runs on it and moves it; empty: none does.
            snapshots: that replace those that it has, in that store; none: it keeps these.
        """
        keys = PoolKeys(record.pool)
        return await self._run(
            "move_session",
            record,
            record.epoch,
            there.epoch,
            record.operation_number,
            there.worker_id,
            there.incarnation,
            there.address,
            there.reserved_bytes,
            there.history_length,
            there.kv_live_bytes,
            there.retained,
            there.fingerprint,
            int(there.exact),
            claim,
            text(snapshots),
            snapshot_store,
            more_keys=(keys.worker(there.worker_id), keys.sessions(there.incarnation)),
        )

    async def park(
        self,
        record: SessionRecord,
        parked_ms: int,
        *,
        by_journal: bool,
        idle_ms: int | None = None,
        wanted_by: str = "",
    ) -> Reply:
        """Takes a session off its lane, if no operation runs; see park_session.lua.

        Args:
            by_journal: only if its journal has all of its history.
            idle_ms: only if it has been idle for so long, and gives way to the tenant that wants its lane.
        """
        return await self._run(
            "park_session",
            record,
            record.epoch,
            parked_ms,
            int(self._redis.answers_for(self._grace_seconds)),
            int(by_journal),
            "" if idle_ms is None else idle_ms,
            wanted_by,
        )

    async def rewind(
        self,
        record: SessionRecord,
        claim: str,
        length: int,
        snapshots: Snapshots,
        snapshot_store: str,
        lane_rewinds: int | None,
        inherited: Snapshots = (),
        history_digest: int | None = None,
    ) -> Reply:
        """Takes the history back to a length; see rewind_session.lua.

        Args:
            lane_rewinds: how often the lane was taken back, this time too; None: it is given up.
            inherited: those that it keeps.
            history_digest: of what the lane holds now; None: not known.
        """
        return await self._run(
            "rewind_session",
            record,
            claim,
            record.epoch,
            length,
            record.snapshots,
            text(snapshots),
            snapshot_store,
            "" if lane_rewinds is None else lane_rewinds,
            record.inherited,
            text(inherited),
            _digest(history_digest),
            more_keys=(PoolKeys(record.pool).heirs,),
        )

    async def set_snapshots(
        self,
        record: SessionRecord,
        snapshots: Snapshots,
        journal_start: int,
        snapshot_store: str,
        num_rewinds: int,
        inherited: Snapshots = (),
    ) -> Reply:
        """Replaces those of the record by others, of which some may be new.

        Args:
            num_rewinds: of the session when the newest was begun.
            inherited: of those that the record names, which it keeps.
        """
        length = snapshots[-1].length if snapshots else 0
        return await self._run(
            "set_snapshots",
            record,
            record.epoch,
            record.snapshots,
            text(snapshots),
            length,
            journal_start,
            snapshot_store,
            num_rewinds,
            record.inherited,
            text(inherited),
            _digest(snapshots[-1].history_digest if snapshots else None),
            more_keys=(PoolKeys(record.pool).heirs,),
        )

    async def begin_close(
        self, record: SessionRecord, claim: str, cause: Cause, *, idle_ms: int = 0, wanted_by: str = ""
    ) -> Reply:
        """The last two are of Cause.IDLE: how long it must have been idle, and the tenant that wants its lane."""
        return await self._run(
            "begin_close", record, claim, self._router_id, self._lane_lease_ms, cause.value, idle_ms, wanted_by
        )

    async def delete(self, record: SessionRecord, claim: str, history_length: int) -> Reply:
        """`history_length` is the final one."""
        keys = PoolKeys(record.pool)
        more_keys = (keys.closed(record.session_id), keys.heirs)
        return await self._run("delete_session", record, claim, history_length, _CLOSED_TTL_MS, more_keys=more_keys)

    async def closed(self, session_id: str) -> tuple[int, str] | None:
        """Final history length and tenant of a session that lived for one answer, for a minute; None: not known."""
        key = PoolKeys(pool_of(session_id) or "").closed(session_id)
        found = await self._redis.call(lambda redis: redis.get(key))
        if not found:
            return None
        length, _, tenant = found.partition(" ")
        return int(length), tenant

    async def _run(
        self, script: str, record: SessionRecord, *arguments: Argument, more_keys: Sequence[str] = ()
    ) -> Reply:
        answer = await self._redis.script(script, [*record.keys, *more_keys], (record.session_id, *arguments))
        if isinstance(answer, str):
            return Reply(answer)
        outcome, *rest = answer
        if rest and isinstance(rest[0], list):
            flat = iter(rest[0])
            return Reply(outcome, SessionRecord.from_hash(dict(zip(flat, flat, strict=True))))
        return Reply(outcome, rest=tuple(map(str, rest)))


def _digest(digest: int | None) -> str:
    return "" if digest is None else f"{digest:016x}"
