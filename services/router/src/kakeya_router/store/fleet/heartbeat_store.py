"""What workers say again and again, written to Redis in groups."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from kakeya_router.store.connection import RedisConnection, is_done
from kakeya_router.store.fleet.worker_store import Identity
from kakeya_router.store.keys import POOLS, ROUTERS, PoolKeys
from kakeya_router.store.outcomes import Heartbeat, ReportLane
from kakeya_router.store.script_calls import ScriptCall, in_ms
from kakeya_router.store.session_record import Epoch, PoolName, SessionId
from kakeya_shared.process.detached_tasks import DetachedTasks, unheard

# Nothing waits for a heartbeat but its worker's lease, which is seconds. Of 1,000 workers some come within it.
_GROUP_SECONDS = 0.02
# A few milliseconds of Redis: a thousand lanes must not hold up what else is asked.
_LANES_AT_ONCE = 256


class Lane(NamedTuple):
    """What a worker says of one lane; `retained` as in a `SessionRecord`, `num_rewinds` its `lane_rewinds`.

    `lane` is its number in the slab; None: not said.
    """

    session_id: SessionId
    epoch: Epoch
    history_length: int
    kv_live_bytes: int
    retained: str
    num_rewinds: int = 0
    lane: int | None = None


Reported = tuple[Identity, Lane]
"""A lane, and the incarnation that has it."""


class Said(NamedTuple):
    """One heartbeat.

    Attributes:
        number: of the heartbeat; one that comes after a later one only renews the lease. 0: it has none.
        lanes: that it reports.
    """

    of: Identity
    kv_live_bytes: int = 0
    rss_bytes: int = 0
    leaving: bool = False
    number: int = 0
    tunnels: str = ""
    lanes: Sequence[Lane] = ()


class Answer(NamedTuple):
    """To a heartbeat.

    Attributes:
        is_registered: else nothing is taken over.
        routers: that run.
        orphans: lanes that no lease covers.
    """

    is_registered: bool
    routers: Sequence[str]
    orphans: Sequence[Lane]


@dataclass(eq=False)
class HeartbeatStore:
    """Writes heartbeats to Redis in groups.

    Attributes:
        worker_lease_seconds: for so long a heartbeat renews the lease of its incarnation.
    """

    _redis: RedisConnection
    _tasks: DetachedTasks
    worker_lease_seconds: float
    _groups: dict[PoolName, "_Group"] = field(default_factory=dict, init=False)

    async def heartbeat(self, said: Said) -> Answer:
        """Renews the lease, takes over what the worker says of itself and its lanes. Those of a pool that come within
        some milliseconds are written together. Raises StoreUnavailable.
        """
        group = self._groups.get(said.of.pool)
        if group is None:
            group = self._groups[said.of.pool] = _Group()
            group.answers = self._tasks.start(self._write(said.of.pool, group.said))
            unheard(group.answers)
        place = len(group.said)
        group.said.append(said)
        answers = await asyncio.shield(group.answers)
        return answers[place]

    async def _write(self, pool: PoolName, group: Sequence[Said]) -> list[Answer]:
        await asyncio.sleep(_GROUP_SECONDS)
        del self._groups[pool]
        keys = PoolKeys(pool)
        # The reaper may have forgotten the pool while a worker was about to join it.
        _, routers, *outcomes = await self._redis.scripts(
            "heartbeat", (self._beat(keys, said) for said in group), [("SADD", POOLS, pool), ("ZRANGE", ROUTERS, 0, -1)]
        )
        known = [is_done(Heartbeat(outcome)) for outcome in outcomes]
        taken = [said if is_known else said._replace(lanes=()) for said, is_known in zip(group, known, strict=True)]
        are_leased = iter(await self.report_lanes(pool, [(said.of, lane) for said in taken for lane in said.lanes]))
        orphans = [[lane for lane in said.lanes if not next(are_leased)] for said in taken]
        return [Answer(is_known, routers, some) for is_known, some in zip(known, orphans, strict=True)]

    async def report_lanes(self, pool: PoolName, reported: Sequence[Reported]) -> list[bool]:
        """Takes over what workers of a pool say of their lanes; returns whether a lease covers each. Raises
        StoreUnavailable.
        """
        keys, are_leased = PoolKeys(pool), list[bool]()
        for start in range(0, len(reported), _LANES_AT_ONCE):
            some = reported[start : start + _LANES_AT_ONCE]
            are_leased += map(
                _has_lease, await self._redis.outcomes(ReportLane, (_report(keys, each) for each in some))
            )
        return are_leased

    def _beat(self, keys: PoolKeys, said: Said) -> ScriptCall:
        _, worker_id, incarnation = said.of
        return [keys.worker(worker_id), keys.workers, keys.queue], {
            "worker_id": worker_id,
            "incarnation": incarnation,
            "lease_ms": in_ms(self.worker_lease_seconds),
            "kv_live_bytes": said.kv_live_bytes,
            "rss_bytes": said.rss_bytes,
            "leaving": said.leaving,
            "tunnels": said.tunnels,
            "number": said.number,
        }


def _has_lease(outcome: Literal[ReportLane.UPDATED, ReportLane.KEPT, ReportLane.ORPHAN]) -> bool:
    return outcome is not ReportLane.ORPHAN


def _report(keys: PoolKeys, reported: Reported) -> ScriptCall:
    (_, worker_id, incarnation), lane = reported
    return [
        keys.session(lane.session_id),
        keys.worker(worker_id),
        keys.operation(lane.session_id),
        keys.sessions(incarnation),
        keys.expiry,
        keys.idle,
    ], {"incarnation": incarnation} | lane._asdict()


@dataclass(eq=False, slots=True)
class _Group:
    said: list[Said] = field(default_factory=list)
    answers: "asyncio.Task[list[Answer]]" = field(init=False)
