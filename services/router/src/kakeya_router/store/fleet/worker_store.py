"""Workers, their ledgers, and the list of routers in Redis."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kakeya_router.store.connection import RedisConnection, is_done
from kakeya_router.store.keys import POOLS, ROUTERS, PoolKeys
from kakeya_router.store.outcomes import DrainWorker, DropWorker, JoinWorker
from kakeya_router.store.script_calls import ScriptCall, in_ms
from kakeya_router.store.session_record import Incarnation, PoolName, WorkerId
from kakeya_router.store.worker_record import WorkerRecord

_SESSIONS_AT_ONCE = 256
# In a worker's ledger.
_COUNTS = ("reserved_bytes", "num_sessions", "kv_live_bytes")
# Of a session: whether it is there, and what its lane counts for.
_OF_HELD = ("state", "incarnation", "reserved_bytes", "kv_live_bytes", "tenant", "key_id")


class Identity(NamedTuple):
    """Of an incarnation of a worker."""

    pool: PoolName
    worker_id: WorkerId
    incarnation: Incarnation


class Joined(NamedTuple):
    """What has become of a worker that joins; `model`: of its pool, where that is another one."""

    outcome: JoinWorker
    model: str


@dataclass(eq=False)
class WorkerStore:
    """All methods raise StoreUnavailable.

    Attributes:
        worker_lease_seconds: without a heartbeat for so long an incarnation is lost; routers likewise leave the
            list of routers.
    """

    _redis: RedisConnection
    worker_lease_seconds: float

    async def announce_router(self, address: str) -> list[str]:
        """Says that the router at `address` runs; returns all that do."""
        addresses: list[str] = await self._redis.script(
            "announce_router", [ROUTERS], address=address, lease_ms=in_ms(self.worker_lease_seconds)
        )
        return addresses

    async def forget_router(self, address: str) -> None:
        await self._redis.call(lambda redis: redis.zrem(ROUTERS, address))

    async def routers(self) -> list[str]:
        addresses: list[str] = await self._redis.call(lambda redis: redis.zrange(ROUTERS, 0, -1))
        return addresses

    async def pools(self) -> list[PoolName]:
        return sorted(await self._redis.call(lambda redis: redis.smembers(POOLS)))

    async def workers(self, pool: PoolName) -> list[WorkerRecord]:
        """The registered incarnations of a pool, by worker id."""
        (listed,) = await self._listed([pool])
        return _by_id(listed)

    async def worker(self, pool: PoolName, worker_id: WorkerId) -> WorkerRecord | None:
        """The registered incarnation of a worker; None: there is none."""
        values = await self._redis.hash(PoolKeys(pool).worker(worker_id))
        return WorkerRecord.from_hash(values) if values else None

    async def all_workers(self) -> list[WorkerRecord]:
        """All there is of them: O(workers), for what lists them all. What places sessions asks `Fleet`."""
        listed = await self._listed(await self.pools())
        return [worker for each in listed for worker in _by_id(each)]

    async def _listed(self, pools: Sequence[PoolName]) -> list[list[list[str]]]:
        return await self._redis.scripts("list_workers", (listing(pool, ()) for pool in pools))

    async def now_ms(self) -> int:
        return await self._redis.now_ms()

    async def join(self, worker: WorkerRecord, *, again: bool = False) -> Joined:
        """Args:
        again: its process has joined before: it takes its id back from nobody who has joined under it since.
        """
        await self._redis.call(lambda redis: redis.sadd(POOLS, worker.pool))
        keys = PoolKeys(worker.pool)
        outcome, said = await self._redis.outcome(
            JoinWorker,
            [keys.worker(worker.worker_id), keys.workers, keys.lost, keys.queue],
            worker_id=worker.worker_id,
            incarnation=worker.incarnation,
            lease_ms=in_ms(self.worker_lease_seconds),
            again=again,
            features=worker.features,
            token_id=worker.token_id,
            model=worker.model,
            of_worker=keys.worker(WorkerId("")),
            record=worker.to_pairs(),
        )
        return Joined(outcome, said[0] if said else "")

    async def mark_draining(self, worker: WorkerRecord, *, draining: bool) -> bool:
        """Has an incarnation drained, or no more; False when it is not registered."""
        keys = PoolKeys(worker.pool)
        outcome, _ = await self._redis.outcome(
            DrainWorker,
            [keys.worker(worker.worker_id), keys.queue],
            incarnation=worker.incarnation,
            drain_asked=draining,
        )
        return is_done(outcome)

    async def drop(self, of: Identity, *, lapsed_only: bool) -> bool:
        """Forgets an incarnation; its sessions are left to the sweep."""
        keys = PoolKeys(of.pool)
        outcome, _ = await self._redis.outcome(
            DropWorker,
            [keys.worker(of.worker_id), keys.workers, keys.lost],
            worker_id=of.worker_id,
            incarnation=of.incarnation,
            lapsed_only=lapsed_only,
        )
        return is_done(outcome)

    async def lapsed(self, pool: PoolName, limit: int) -> list[WorkerRecord]:
        """Incarnations whose lease has lapsed."""
        keys, now_ms = PoolKeys(pool), await self.now_ms()
        ids = await self._redis.call(lambda redis: redis.zrangebyscore(keys.workers, "-inf", now_ms, 0, limit))
        found = await self._redis.hashes([keys.worker(worker_id) for worker_id in ids])
        return [WorkerRecord.from_hash(values) for values in found if values]

    async def lost(self, pool: PoolName) -> list[Incarnation]:
        """Incarnations that are gone while some of their sessions may not be marked LOST yet."""
        return sorted(await self._redis.call(lambda redis: redis.smembers(PoolKeys(pool).lost)))

    async def swept(self, pool: PoolName, incarnation: Incarnation) -> None:
        """All sessions of a lost incarnation are marked."""
        await self._redis.call(lambda redis: redis.srem(PoolKeys(pool).lost, incarnation))

    async def forget_empty_pool(self, pool: PoolName) -> None:
        """Takes a pool without workers, sessions and waiters off the list of pools."""
        keys = PoolKeys(pool)
        if not await self._redis.call(lambda redis: redis.exists(keys.workers, keys.lost, keys.expiry, keys.queue)):
            await self._redis.call(lambda redis: redis.srem(POOLS, pool))

    async def ledger_errors(self, pool: PoolName) -> dict[str, dict[str, tuple[int, int]]]:
        """Counts in the ledgers of a pool that are not what its sessions with a lane come to, by key and name: what
        each says, and what it should. The two are of different moments.
        """
        keys = PoolKeys(pool)
        usage = await self._redis.hash(keys.usage)
        said = {keys.usage: Counter({name: int(count) for name, count in usage.items()})}
        ledgers = {}
        for worker in await self.workers(pool):
            ledgers[worker.incarnation] = ledger = keys.worker(worker.worker_id)
            said[ledger] = Counter({name: getattr(worker, name) for name in _COUNTS})
        counted = defaultdict[str, Counter[str]](Counter)
        for incarnation in (*ledgers, *await self.lost(pool)):
            for fields in await self._held(keys, incarnation):
                _count(counted[ledgers.get(incarnation, "")], counted[keys.usage], *fields)
        return {key: _differences(each, counted[key]) for key, each in said.items()}

    async def _held(self, keys: PoolKeys, incarnation: Incarnation) -> list[list[str]]:
        """What the lanes of an incarnation count for, as `_count` takes it; sessions that Redis has evicted leave its
        list.
        """
        key = keys.sessions(incarnation)
        session_ids = sorted(await self._redis.call(lambda redis: redis.smembers(key)))
        found = []
        for start in range(0, len(session_ids), _SESSIONS_AT_ONCE):
            batch = session_ids[start : start + _SESSIONS_AT_ONCE]
            records = await self._redis.commands(("HMGET", keys.session(each), *_OF_HELD) for each in batch)
            gone = [session_id for session_id, (state, *_) in zip(batch, records, strict=True) if state is None]
            if gone:
                await self._redis.commands([("SREM", key, *gone)])
            found += [fields for _, its_incarnation, *fields in records if its_incarnation == incarnation]
        return found

    async def correct(self, key: str, changes: Sequence[tuple[str, int, int]]) -> list[str]:
        """Corrects counts, of each its name, what it said and what it is to say; returns those that still said that."""
        corrected: list[str] = await self._redis.script(
            "repair_ledger", [key], changes=[part for each in changes for part in each]
        )
        return corrected


def listing(pool: PoolName, fields: Sequence[str]) -> ScriptCall:
    """Of list_workers.lua: all fields where none is named."""
    keys = PoolKeys(pool)
    return [keys.workers], {"worker": keys.worker(WorkerId("")), "fields": fields}


def _by_id(listed: Sequence[Sequence[str]]) -> list[WorkerRecord]:
    workers = [WorkerRecord.from_pairs(flat) for _, flat in listed if flat]
    return sorted(workers, key=lambda worker: worker.worker_id)


def _count(
    worker: Counter[str],
    usage: Counter[str],
    reserved_bytes: str,
    kv_live_bytes: str | None,
    tenant: str | None,
    key_id: str | None,
) -> None:
    """Adds a lane to the counts of its worker, and of its tenant and key."""
    num_bytes = int(reserved_bytes)
    num_lanes = int(num_bytes > 0)
    worker.update(reserved_bytes=num_bytes, num_sessions=num_lanes, kv_live_bytes=int(kv_live_bytes or 0))
    if tenant is not None and num_lanes:  # else an older router reserved the lane, and counted it for nobody
        usage.update({f"{tenant}|sessions": num_lanes, f"{tenant}|bytes": num_bytes})
        if key_id:
            usage[f"key:{key_id}|sessions"] += num_lanes


def _differences(said: Counter[str], counted: Counter[str]) -> dict[str, tuple[int, int]]:
    names = said.keys() | counted.keys()
    return {name: (said[name], counted[name]) for name in names if said[name] != counted[name]}
