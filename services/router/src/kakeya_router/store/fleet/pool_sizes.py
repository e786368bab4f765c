"""How much there is of a pool's sessions and queue, counted by Redis in its lists."""

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.keys import PoolKeys
from kakeya_router.store.session_record import PoolName


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """Of one pool: sessions in all, those with a lane on which no operation runs, calls in the queue, and bytes of
    snapshots.
    """

    pool: PoolName
    num_sessions: int
    num_idle: int
    queue_length: int
    snapshot_bytes: int


async def pool_sizes(redis: RedisConnection, pools: Sequence[PoolName]) -> list[PoolSizes]:
    """In one round trip, whatever their number of sessions; raises StoreUnavailable."""
    commands: list[tuple[str, str]] = []
    for keys in map(PoolKeys, pools):
        commands += [("ZCARD", keys.expiry), ("ZCARD", keys.idle), ("ZCARD", keys.queue), ("GET", keys.snapshot_bytes)]
    counts = [int(count or 0) for count in await redis.commands(commands)]
    return [PoolSizes(pool, *counts[4 * i : 4 * i + 4]) for i, pool in enumerate(pools)]
