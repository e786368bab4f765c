"""What the stores of sessions have in common; each change of a session is one script."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic

from kakeya_router.store.connection import OutcomeT, RedisConnection, time_ms
from kakeya_router.store.keys import PoolKeys, keys_of, pool_of
from kakeya_router.store.script_calls import Argument
from kakeya_router.store.session_record import PoolName, SessionId, SessionRecord
from kakeya_shared.process.detached_tasks import Outcome

BYTES_PER_TOKEN = 4


class Taken(Outcome):
    """The operation is not its router's any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A router that holds sessions, and for how long it does.

    Attributes:
        router_id: names it in operation records.
        operation_lease_ms: how long an operation stays its own without a renewal.
        lane_lease_ms: how long opening or closing a session stays its own; it is not renewed, so it must outlast
            the worker's call.
        grace_seconds: after an outage of Redis no lapsed operation is taken over for so long; its router could not
            renew it.
        waiter_grace_seconds: the same for waiters; see `QueueStore`.
    """

    router_id: str
    operation_lease_ms: int
    lane_lease_ms: int
    grace_seconds: float
    waiter_grace_seconds: float = 0


@dataclass(frozen=True, slots=True)
class ExceededQuota:
    """Which it is, by how it is called, and how much it allows; `retry_ms` until there are tokens again."""

    name: str = ""
    limit: str = ""
    retry_ms: int | None = None


NO_QUOTA = ExceededQuota()


@dataclass(frozen=True, slots=True)
class Answer(Generic[OutcomeT]):
    """What a script says of a session.

    Attributes:
        record: as the script has read it; where the outcome comes without one, as the script was given it.
        quota: with the outcome QUOTA.
    """

    outcome: OutcomeT
    record: SessionRecord
    quota: ExceededQuota = NO_QUOTA


@dataclass(frozen=True, slots=True)
class Glance:
    """A session seen without touching it.

    Attributes:
        alive: whether the incarnation that holds its lane is registered.
        busy: whether an operation runs.
        now_ms: Redis time.
    """

    record: SessionRecord
    alive: bool
    busy: bool
    now_ms: int

    @property
    def idle_seconds(self) -> float:
        """Since the last operation ended; 0 while one runs."""
        return 0.0 if self.busy else max(0, self.now_ms - self.record.idle_since_ms) / 1000


@dataclass(eq=False)
class SessionStore:
    """Reads sessions. All methods raise StoreUnavailable, here and in the stores that build on it."""

    _redis: RedisConnection
    _holder: Holder

    async def get(self, session_id: SessionId) -> SessionRecord | None:
        pool = pool_of(session_id)
        values = await self._redis.hash(PoolKeys(pool).session(session_id)) if pool else None
        return SessionRecord.from_hash(values) if values else None

    async def records(self, pool: PoolName, session_ids: Sequence[SessionId]) -> list[SessionRecord]:
        """Those of the sessions that there are."""
        found = await self._redis.hashes([PoolKeys(pool).session(session_id) for session_id in session_ids])
        return [SessionRecord.from_hash(values) for values in found if values]

    async def glance(self, session_id: SessionId) -> Glance | None:
        record = await self.get(session_id)
        return (await self._glances(record.pool, [record]))[0] if record else None

    async def _glances(self, pool: PoolName, records: Sequence[SessionRecord]) -> list[Glance]:
        """Looks at sessions of a pool without touching them."""
        keys, worker_ids = PoolKeys(pool), sorted({record.worker_id for record in records})
        time, *found = await self._redis.commands(
            [
                ("TIME",),
                *(("HGET", keys.worker(worker_id), "incarnation") for worker_id in worker_ids),
                *(("HGET", keys.operation(record.session_id), "lease_until_ms") for record in records),
            ]
        )
        now_ms, incarnations, leases = time_ms(time), {*found[: len(worker_ids)]}, found[len(worker_ids) :]
        return [
            Glance(record, record.incarnation in incarnations, int(lease_until_ms or 0) > now_ms, now_ms)
            for record, lease_until_ms in zip(records, leases, strict=True)
        ]

    async def _outcome(
        self, of: type[OutcomeT], record: SessionRecord, more_keys: Sequence[str] = (), /, **arguments: Argument
    ) -> OutcomeT:
        """Runs a script that answers with an outcome alone."""
        outcome, _ = await self._run(of, record, more_keys, **arguments)
        return outcome

    async def _answer(
        self,
        of: type[OutcomeT],
        record: SessionRecord,
        more_keys: Sequence[str] = (),
        /,
        **arguments: Argument | Sequence[Argument],
    ) -> Answer[OutcomeT]:
        """Runs a script that answers with an outcome, and some of them with a record or a quota."""
        outcome, rest = await self._run(of, record, more_keys, **arguments)
        if rest and isinstance(rest[0], list):
            return Answer(outcome, SessionRecord.from_pairs(rest[0]))
        return Answer(outcome, record, ExceededQuota(*rest))

    async def _run(
        self,
        of: type[OutcomeT],
        record: SessionRecord,
        more_keys: Sequence[str] = (),
        /,
        **arguments: Argument | Sequence[Argument],
    ) -> tuple[OutcomeT, list[Any]]:
        """Runs a script of a session."""
        return await self._redis.outcome(of, [*keys_of(record), *more_keys], session_id=record.session_id, **arguments)

    def _may_take_over(self) -> bool:
        return self._redis.answers_for(self._holder.grace_seconds)

    def _may_clear(self) -> bool:
        return self._redis.answers_for(self._holder.waiter_grace_seconds)


def digest_text(digest: int | None) -> str:
    """Of a history, as scripts take it; empty: not known."""
    return "" if digest is None else f"{digest:016x}"


def pack(token_ids: Sequence[int]) -> bytes:
    """Tokens as journals keep them: 4 bytes each, little-endian."""
    return struct.pack(f"<{len(token_ids)}I", *token_ids)


def unpack(packed: bytes) -> list[int]:
    """The reverse of `pack`."""
    return list(struct.unpack(f"<{len(packed) // BYTES_PER_TOKEN}I", packed))
