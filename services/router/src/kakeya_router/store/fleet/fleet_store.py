"""The registered workers, read again and again: of those that are known only what changes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.fleet.worker_store import listing
from kakeya_router.store.keys import POOLS, PoolKeys
from kakeya_router.store.script_calls import ScriptCall
from kakeya_router.store.session_record import Incarnation, PoolName, WorkerId
from kakeya_router.store.worker_record import WorkerRecord

CHANGING: Final = (
    "incarnation",
    "reserved_bytes",
    "kv_live_bytes",
    "num_sessions",
    "heartbeat_number",
    "reported_kv_live_bytes",
    "rss_bytes",
    "heartbeat_ms",
    "tunnels",
    "leaving",
    "drain_asked",
    "features",  # these two where an older router has registered it
    "token_id",
)
"""Fields of a worker's hash that change while it is registered; all others stay as they were at its join."""

_Values = Sequence[str | None]


@dataclass(eq=False)
class _Known:
    """`values` are those of CHANGING; `fields` all of its hash."""

    values: _Values
    fields: dict[str, str]
    record: WorkerRecord

    def learn(self, values: _Values) -> None:
        if self.values != values:
            self.values = values
            self.fields |= {name: value for name, value in zip(CHANGING, values, strict=True) if value is not None}
            self.record = WorkerRecord.from_hash(self.fields)


@dataclass(eq=False)
class FleetStore:
    """Reads for one router. All methods raise StoreUnavailable."""

    _redis: RedisConnection
    _pools: list[PoolName] = field(default_factory=list, init=False)
    _known: dict[tuple[PoolName, WorkerId], _Known] = field(default_factory=dict, init=False)

    async def workers(self) -> list[WorkerRecord]:
        """All of them, by pool and id: in one round trip, but for those that are new since the last time."""
        asked = self._pools
        pools, *found = await self._redis.scripts("list_workers", self._listings(asked), [("SMEMBERS", POOLS)])
        self._pools = sorted(pools)
        listed = dict(zip(asked, found, strict=True))
        if new := [pool for pool in self._pools if pool not in listed]:
            listed |= zip(new, await self._redis.scripts("list_workers", self._listings(new)), strict=True)
        seen = {
            (pool, WorkerId(worker_id)): values
            for pool in self._pools
            for worker_id, values in listed[pool]
            if values[0] is not None  # else it has gone, or its hash was evicted
        }
        await self._learn(seen)
        self._known = {key: self._known[key] for key in sorted(seen) if key in self._known}
        return [known.record for known in self._known.values()]

    async def latest(self, workers: Iterable[WorkerRecord]) -> list[WorkerRecord]:
        """These as they are now, in one round trip; without those that are gone."""
        asked = {(worker.pool, worker.worker_id): worker.incarnation for worker in workers}
        found = await self._redis.commands(
            ("HMGET", PoolKeys(pool).worker(worker_id), *CHANGING) for pool, worker_id in asked
        )
        latest = []
        for (key, incarnation), values in zip(asked.items(), found, strict=True):
            if values[0] == incarnation and self._is_of(key, incarnation):
                self._known[key].learn(values)
                latest.append(self._known[key].record)
        return latest

    def _listings(self, pools: Iterable[PoolName]) -> Iterable[ScriptCall]:
        return (listing(pool, CHANGING) for pool in pools)

    async def _learn(self, seen: dict[tuple[PoolName, WorkerId], _Values]) -> None:
        new = [key for key, values in seen.items() if not self._is_of(key, values[0])]
        hashes = await self._redis.hashes([PoolKeys(pool).worker(worker_id) for pool, worker_id in new])
        for key, fields in zip(new, hashes, strict=True):
            if fields:
                values = [fields.get(name) for name in CHANGING]
                self._known[key] = _Known(values, fields, WorkerRecord.from_hash(fields))
            else:
                self._known.pop(key, None)  # it has gone since
        for key in seen.keys() - set(new):
            self._known[key].learn(seen[key])

    def _is_of(self, key: tuple[PoolName, WorkerId], incarnation: str | Incarnation | None) -> bool:
        return key in self._known and self._known[key].values[0] == incarnation
