"""Sessions and queues as viewers see them: read many at once, and only what is shown."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Final

from kakeya_router.store.connection import RedisConnection, time_ms
from kakeya_router.store.keys import POOLS, PoolKeys, pool_of
from kakeya_router.store.session_record import PoolName, SessionId
from kakeya_router.store.sessions.session_changes import INTERRUPTED
from kakeya_router.store.watched_session import WatchedSession

# As `session_lists`: nobody waits for thousands.
_AT_ONCE: Final = 500
_FIELDS: Final = tuple(field.name for field in fields(WatchedSession) if field.name != "busy")


@dataclass(frozen=True, slots=True)
class PoolView:
    """What a pool holds beside its workers.

    Attributes:
        num_sessions: that are kept, parked and ended ones included.
        waiting: calls in the queue, by tenant.
    """

    num_sessions: int
    waiting: tuple[tuple[str, int], ...]

    @property
    def num_waiting(self) -> int:
        return sum(number for _, number in self.waiting)


@dataclass(frozen=True, slots=True)
class WatchStore:
    """All methods raise StoreUnavailable."""

    _redis: RedisConnection

    async def session_ids(self, pool: PoolName, cursor: int) -> tuple[list[SessionId], int]:
        """Some sessions of a pool, and where the next ones begin; 0: these were the last, or are to be the first."""
        expiry = PoolKeys(pool).expiry
        following, found = await self._redis.call(lambda redis: redis.zscan(expiry, cursor, count=_AT_ONCE))
        return [session_id for session_id, _ in found], int(following)

    async def sessions(self, session_ids: Collection[SessionId]) -> list[WatchedSession]:
        """Those of the sessions that there are."""
        named = [(PoolKeys(pool), session_id) for session_id in session_ids if (pool := pool_of(session_id))]
        found: list[WatchedSession] = []
        for start in range(0, len(named), _AT_ONCE):
            found += await self._some(named[start : start + _AT_ONCE])
        return found

    async def _some(self, named: Sequence[tuple[PoolKeys, SessionId]]) -> Iterable[WatchedSession]:
        time, *answers = await self._redis.commands(
            [
                ("TIME",),
                *(("HMGET", keys.session(session_id), *_FIELDS) for keys, session_id in named),
                *(("HGET", keys.operation(session_id), "lease_until_ms") for keys, session_id in named),
            ]
        )
        now_ms, records, leases = time_ms(time), answers[: len(named)], answers[len(named) :]
        return [
            _session(values, is_busy=int(lease_until_ms or 0) > now_ms)
            for values, lease_until_ms in zip(records, leases, strict=True)
            if values[0] is not None
        ]

    async def pools(self) -> tuple[dict[PoolName, PoolView], int]:
        """What each pool holds, and the time by Redis's clock in milliseconds."""
        names: list[PoolName] = sorted(await self._redis.call(lambda redis: redis.smembers(POOLS)))
        keys = [PoolKeys(name) for name in names]
        time, *answers = await self._redis.commands(
            [
                ("TIME",),
                *(("ZCARD", each.expiry) for each in keys),
                *(("ZRANGE", each.queue, 0, -1) for each in keys),
            ]
        )
        counts, queues = answers[: len(keys)], answers[len(keys) :]
        views = [PoolView(number, _by_tenant(members)) for number, members in zip(counts, queues, strict=True)]
        return dict(zip(names, views, strict=True)), time_ms(time)


def _session(values: Sequence[str | None], *, is_busy: bool) -> WatchedSession:
    known = {name: value for name, value in zip(_FIELDS, values, strict=True) if value is not None}
    return WatchedSession.from_hash(known | {"busy": "1" if is_busy else "0"})


def _by_tenant(members: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Of sessions that have lost their lane in the middle of an operation the queue does not say whose they are."""
    counted = Counter(member.split("|", 1)[0].replace(INTERRUPTED, "") for member in members)
    return tuple(sorted(counted.items()))
