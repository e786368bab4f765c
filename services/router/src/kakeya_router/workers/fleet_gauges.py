"""Gauges of the whole runtime, which every router shows alike, and those that autoscalers look for."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kakeya_router.metrics import RouterMetrics
from kakeya_router.store.fleet.pool_sizes import PoolSizes
from kakeya_router.store.sessions.session_lists import TenantUsage
from kakeya_router.store.worker_record import WorkerRecord
from kakeya_shared.metrics.meters import Gauge, Meters

_NOT_KNOWN = math.nan  # so Prometheus draws a gap, and no zero


@dataclass(frozen=True)
class Seen:
    """The runtime at one moment.

    Attributes:
        usage: of each pool, by tenant.
        now_ms: by the clock of Redis.
    """

    workers: Sequence[WorkerRecord]
    pools: Sequence[PoolSizes]
    usage: Sequence[Mapping[str, TenantUsage]]
    now_ms: int


class FleetGauges:
    """All are set together, of one look at the runtime, so that those of one exposition agree."""

    def __init__(self, metrics: RouterMetrics) -> None:
        self._tenant_label = metrics.tenants.label
        meters = metrics.meters
        self._fleet = _Fleet(meters)
        self._workers = _Workers(meters)
        self._pools = _Pools(meters)
        self._tenants = _Tenants(meters)
        self._queued = meters.gauge(
            "kakeya_queued_requests", "Calls of this router that wait for a lane; for autoscalers.", unit="requests"
        )
        self._running = meters.gauge(
            "kakeya_running_requests",
            "Operations of this router that have their lane; for autoscalers.",
            unit="requests",
        )
        self._utilization = meters.gauge(
            "kakeya_kv_utilization_ratio",
            "Reserved bytes over all bytes of the slabs of workers that are not drained; 0 where there are none. For "
            "autoscalers.",
            unit="ratio",
        )

    def show_calls(self, num_waiting: int, num_running: int) -> None:
        """What this router itself has in hand."""
        self._queued.set(num_waiting)
        self._running.set(num_running)

    def show(self, seen: Seen | None) -> None:
        """None: Redis does not say. Then nothing is shown rather than what was."""
        workers = seen.workers if seen else ()
        self._fleet.show(seen)
        self._workers.show(workers, seen.now_ms if seen else 0)
        self._pools.show(seen.pools if seen else ())
        self._tenants.show(self._by_label(seen.usage if seen else ()))
        able = [worker for worker in workers if not worker.draining]
        slab_bytes = sum(worker.slab_bytes for worker in able)
        used = sum(worker.reserved_bytes for worker in able) / slab_bytes if slab_bytes else 0.0
        self._utilization.set(used if seen else _NOT_KNOWN)

    def _by_label(self, usage: Iterable[Mapping[str, TenantUsage]]) -> Mapping[str, Counter[str]]:
        """Over all pools; without those who call without a key."""
        sums: dict[str, Counter[str]] = {}
        for tenants in usage:
            for tenant, used in tenants.items():
                if tenant:
                    counts = sums.setdefault(self._tenant_label(tenant), Counter())
                    counts.update(sessions=used.num_sessions, bytes=used.reserved_bytes, queued=used.num_waiting)
        return sums


class _Fleet:
    """Sums over all pools."""

    def __init__(self, meters: Meters) -> None:
        self._redis_up = meters.gauge(
            "kakeya_router_redis_up",
            "1 where Redis answers; with 0 all that it would say is not known (NaN, or absent).",
        )
        self._sessions = meters.gauge(
            "kakeya_router_sessions",
            'Sessions by state: "running" have an operation (or are being opened or closed), "idle" a lane and none, '
            '"parked" no lane. Those that have failed or are lost are among the last until they are forgotten.',
            "state",
            unit="sessions",
        )
        self._live = meters.gauge(
            "kakeya_router_kv_live_bytes",
            "KV of committed tokens, as all workers have reported with the heartbeats that "
            "kakeya_router_worker_heartbeat_number names: the sum over kakeya_router_worker_kv_live_bytes.",
            unit="bytes",
        )
        self._reserved = meters.gauge(
            "kakeya_router_kv_reserved_bytes", "KV of the lanes that are given to sessions.", unit="bytes"
        )
        self._free = meters.gauge("kakeya_router_kv_free_bytes", "KV of the lanes that are free.", unit="bytes")
        self._num_workers = meters.gauge(
            "kakeya_router_workers", 'Workers that are registered: "ready", or "draining".', "state", unit="workers"
        )
        self._lanes = meters.gauge(
            "kakeya_router_lanes", 'Lanes of all workers, "used" and "free".', "state", unit="lanes"
        )

    def show(self, seen: Seen | None) -> None:
        self._redis_up.set(seen is not None)
        for gauge in (self._sessions, self._num_workers, self._lanes):
            gauge.clear()
        if seen is None:
            for gauge in (self._live, self._reserved, self._free):
                gauge.set(_NOT_KNOWN)
            return
        workers = seen.workers
        self._live.set(sum(worker.reported_kv_live_bytes for worker in workers))
        self._reserved.set(sum(worker.reserved_bytes for worker in workers))
        self._free.set(sum(worker.free_bytes for worker in workers))
        num_draining = sum(worker.draining for worker in workers)
        self._num_workers.labels("ready").set(len(workers) - num_draining)
        self._num_workers.labels("draining").set(num_draining)
        num_used, num_lanes = (sum(getattr(w, name) for w in workers) for name in ("num_sessions", "num_lanes"))
        self._lanes.labels("used").set(num_used)
        self._lanes.labels("free").set(num_lanes - num_used)
        # Counted by several commands, between which sessions come and go.
        num_idle = min(sum(pool.num_idle for pool in seen.pools), num_used)
        self._sessions.labels("idle").set(num_idle)
        self._sessions.labels("running").set(num_used - num_idle)
        self._sessions.labels("parked").set(max(0, sum(pool.num_sessions for pool in seen.pools) - num_used))


class _Workers:
    """One sample a worker; workers are named by operators, and there are as many as are registered."""

    def __init__(self, meters: Meters) -> None:
        self._live = self._gauge(meters, "kv_live_bytes", "Its own sum, as its last heartbeat has said.", "bytes")
        self._reserved = self._gauge(meters, "kv_reserved_bytes", "Of its lanes that are given to sessions.", "bytes")
        self._free = self._gauge(meters, "kv_free_bytes", "Of its lanes that are free.", "bytes")
        self._number = self._gauge(
            meters, "heartbeat_number", "Of its last heartbeat. 0: an older worker, which does not number them.", ""
        )
        self._age = self._gauge(meters, "heartbeat_age_seconds", "Since its last heartbeat.", "seconds")
        self._resident = self._gauge(
            meters, "resident_memory_bytes", "Of its process, as its last heartbeat has said. 0: not known.", "bytes"
        )

    def show(self, workers: Sequence[WorkerRecord], now_ms: int) -> None:
        for gauge in (self._live, self._reserved, self._free, self._number, self._age, self._resident):
            gauge.clear()
        for worker in workers:
            label = worker.pool, worker.worker_id
            self._live.labels(*label).set(worker.reported_kv_live_bytes)
            self._reserved.labels(*label).set(worker.reserved_bytes)
            self._free.labels(*label).set(worker.free_bytes)
            self._number.labels(*label).set(worker.heartbeat_number)
            self._age.labels(*label).set(max(0, now_ms - worker.heartbeat_ms) / 1000)
            self._resident.labels(*label).set(worker.rss_bytes)

    @staticmethod
    def _gauge(meters: Meters, name: str, meaning: str, unit: str) -> Gauge:
        return meters.gauge(f"kakeya_router_worker_{name}", f"Of each worker. {meaning}", "pool", "worker", unit=unit)


class _Pools:
    def __init__(self, meters: Meters) -> None:
        self._queue = meters.gauge("kakeya_router_queue_length", "Calls of all routers in the queue of a pool.", "pool")
        self._snapshots = meters.gauge(
            "kakeya_router_snapshot_bytes", "Bytes of all snapshots that a pool's sessions have.", "pool", unit="bytes"
        )

    def show(self, pools: Sequence[PoolSizes]) -> None:
        self._queue.clear()
        self._snapshots.clear()
        for pool in pools:
            self._queue.labels(pool.pool).set(pool.queue_length)
            self._snapshots.labels(pool.pool).set(pool.snapshot_bytes)


class _Tenants:
    """Absent where callers need no keys."""

    def __init__(self, meters: Meters) -> None:
        self._sessions = meters.gauge(
            "kakeya_router_tenant_sessions", "Sessions of each tenant that have a lane.", "tenant", unit="sessions"
        )
        self._bytes = meters.gauge(
            "kakeya_router_tenant_kv_reserved_bytes", "KV of each tenant's lanes.", "tenant", unit="bytes"
        )
        self._queue = meters.gauge(
            "kakeya_router_tenant_queue_length",
            "Calls of each tenant that wait for a lane. Operations that have lost theirs come before all tenants, "
            "and are in kakeya_router_queue_length alone.",
            "tenant",
        )

    def show(self, tenants: Mapping[str, Counter[str]]) -> None:
        for gauge in (self._sessions, self._bytes, self._queue):
            gauge.clear()
        for label, counts in tenants.items():
            self._sessions.labels(label).set(counts["sessions"])
            self._bytes.labels(label).set(counts["bytes"])
            self._queue.labels(label).set(counts["queued"])
