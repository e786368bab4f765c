"""Workers, their ledgers, and the list of routers in Redis."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.keys import POOLS, ROUTERS, PoolKeys
from kakeya_router.store.records import WorkerRecord


@dataclass(frozen=True, slots=True)
class Lane:
    """What a worker says of one lane; `retained` as in a `SessionRecord`, `num_rewinds` its `lane_rewinds`."""

    session_id: str
    epoch: int
    history_length: int
    kv_live_bytes: int
    retained: str
    num_rewinds: int = 0


class WorkerStore:
    """All methods raise StoreUnavailable.

    Args:
        worker_lease_seconds: without a heartbeat for so long an incarnation is lost; routers likewise leave the
            list of routers.
    """

    def __init__(self, redis: RedisConnection, worker_lease_seconds: float) -> None:
        self._redis = redis
        self._lease_ms = round(worker_lease_seconds * 1000)

    async def announce_router(self, address: str) -> list[str]:
        """Says that the router at `address` runs; returns all that do."""
        addresses: list[str] = await self._redis.script("announce_router", [ROUTERS], (address, self._lease_ms))
        return addresses

    async def forget_router(self, address: str) -> None:
        await self._redis.call(lambda redis: redis.zrem(ROUTERS, address))

    async def routers(self) -> list[str]:
        addresses: list[str] = await self._redis.call(lambda redis: redis.zrange(ROUTERS, 0, -1))
        return addresses

    async def pools(self) -> list[str]:
        return sorted(await self._redis.call(lambda redis: redis.smembers(POOLS)))

    async def workers(self, pool: str) -> list[WorkerRecord]:
        """The registered incarnations of a pool, by worker id."""
        keys = PoolKeys(pool)
        worker_ids = sorted(await self._redis.call(lambda redis: redis.zrange(keys.workers, 0, -1)))
        return await self._records(keys, worker_ids)

    async def all_workers(self) -> list[WorkerRecord]:
        return [worker for pool in await self.pools() for worker in await self.workers(pool)]

    async def now_ms(self) -> int:
        return await self._redis.now_ms()

    async def join(self, worker: WorkerRecord) -> str:
        """Returns the outcome of lua/join_worker.lua."""
        await self._redis.call(lambda redis: redis.sadd(POOLS, worker.pool))
        keys = PoolKeys(worker.pool)
        outcome: str = await self._redis.script(
            "join_worker",
            [keys.worker(worker.worker_id), keys.workers, keys.lost, keys.queue],
            (worker.worker_id, worker.incarnation, self._lease_ms, *worker.to_hash()),
        )
        return outcome

    async def heartbeat(
        self, pool: str, worker_id: str, incarnation: str, *, kv_live_bytes: int, rss_bytes: int, leaving: bool = False
    ) -> bool:
        """Renews the lease, takes over what the worker says of itself; False when the incarnation is not registered."""
        keys = PoolKeys(pool)
        outcome = await self._redis.script(
            "heartbeat",
            [keys.worker(worker_id), keys.workers],
            (worker_id, incarnation, self._lease_ms, kv_live_bytes, rss_bytes, int(leaving)),
        )
        if outcome == "renewed":
            # The reaper may have forgotten the pool while this worker was about to join it.
            await self._redis.call(lambda redis: redis.sadd(POOLS, pool))
        return bool(outcome == "renewed")

    async def mark_draining(self, worker: WorkerRecord, *, draining: bool) -> bool:
        """Has an incarnation emptied, or no more; False when it is not registered."""
        keys = PoolKeys(worker.pool)
        outcome = await self._redis.script(
            "drain_worker", [keys.worker(worker.worker_id), keys.queue], (worker.incarnation, int(draining))
        )
        return bool(outcome == "marked")

    async def report_lanes(self, pool: str, worker_id: str, incarnation: str, lanes: Sequence[Lane]) -> list[Lane]:
        """Takes over what the worker says of its lanes; returns those that no lease covers."""
        keys = PoolKeys(pool)

        async def report(batch: Any) -> None:
            for lane in lanes:
                await batch.script(
                    "report_lane",
                    [keys.session(lane.session_id), keys.worker(worker_id), keys.operation(lane.session_id)],
                    (
                        *(incarnation, lane.epoch, lane.history_length, lane.kv_live_bytes, lane.retained),
                        lane.num_rewinds,
                    ),
                )

        outcomes = await self._redis.pipeline(report)
        return [lane for lane, outcome in zip(lanes, outcomes, strict=True) if outcome == "orphan"]

    async def drop(self, pool: str, worker_id: str, incarnation: str, *, lapsed_only: bool) -> bool:
        """Forgets an incarnation; its sessions are left to the sweep."""
        keys = PoolKeys(pool)
        outcome = await self._redis.script(
            "drop_worker",
            [keys.worker(worker_id), keys.workers, keys.lost],
            (worker_id, incarnation, int(lapsed_only)),
        )
        return bool(outcome == "dropped")

    async def lapsed(self, pool: str, limit: int) -> list[WorkerRecord]:
        """Incarnations whose lease has lapsed."""
        keys, now_ms = PoolKeys(pool), await self.now_ms()
        ids = await self._redis.call(lambda redis: redis.zrangebyscore(keys.workers, "-inf", now_ms, 0, limit))
        return await self._records(keys, ids)

    async def lost(self, pool: str) -> list[str]:
        """Incarnations that are gone while some of their sessions may not be marked LOST yet."""
        return sorted(await self._redis.call(lambda redis: redis.smembers(PoolKeys(pool).lost)))

    async def swept(self, pool: str, incarnation: str) -> None:
        """All sessions of a lost incarnation are marked."""
        await self._redis.call(lambda redis: redis.srem(PoolKeys(pool).lost, incarnation))

    async def forget_empty_pool(self, pool: str) -> None:
        """Takes a pool without workers, sessions and waiters off the list of pools."""
        keys = PoolKeys(pool)
        if not await self._redis.call(lambda redis: redis.exists(keys.workers, keys.lost, keys.expiry, keys.queue)):
            await self._redis.call(lambda redis: redis.srem(POOLS, pool))

    async def _records(self, keys: PoolKeys, worker_ids: Sequence[str]) -> list[WorkerRecord]:
        found = await self._redis.hashes([keys.worker(worker_id) for worker_id in worker_ids])
        return [WorkerRecord.from_hash(values) for values in found if values]
