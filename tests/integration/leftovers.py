"""What sessions, calls and credentials leave behind: nothing, once they are gone."""

from dataclasses import dataclass

import grpc
import redis

from kakeya_stubs.worker.v1.verifier_pb2 import GetSlabRequest
from kakeya_stubs.worker.v1.verifier_pb2_grpc import VerifierServiceStub
from tests.integration.processes import Runtime

# What may stay for so long, if it says so itself: request ids, how sessions ended that were for one answer, and which
# waiters made way in a full queue and have not asked since; and what tenants have the runtime keep.
_OBJECT_SECONDS = 30 * 86_400
_PASSING_SECONDS = {
    "request": 600,
    "closed": 60,
    "evicted": 60,
    **dict.fromkeys(("object", "expiries", "sizes"), _OBJECT_SECONDS),
}


@dataclass(frozen=True)
class Pool:
    """Keys of Redis that stay for as long as a pool has a worker."""

    name: str

    def stays(self, key: str) -> bool:
        inside = f"kakeya:{{{self.name}}}:"
        standing = (
            "kakeya:schema",
            "kakeya:pools",
            "kakeya:routers",
            "kakeya:tunnel_ports",
            "kakeya:tunnel_secret",
            f"{inside}workers",
            f"{inside}ticket",
        )
        return key in standing or key.startswith(f"{inside}worker:")


def leftovers(made: Runtime, pool: Pool) -> list[str]:
    """Everything that should not be there on a runtime that nobody uses."""
    return [*_in_ledger(made), *_on_workers(made), *_in_redis(made, pool)]


def _in_ledger(made: Runtime) -> list[str]:
    return [
        f"the ledger of {worker.worker_id} says {counts} (reserved, live, reported bytes, sessions), "
        f"its heartbeat {worker.last_heartbeat_age_seconds:.1f} s ago"
        for worker in made.list_workers()
        if any(
            counts := (
                worker.reserved_bytes,
                worker.kv_live_bytes,
                worker.reported_kv_live_bytes,
                worker.num_sessions,
            )
        )
    ]


def _on_workers(made: Runtime) -> list[str]:
    found = []
    for worker in made.workers:
        with grpc.insecure_channel(worker.served_at) as channel:
            slab = VerifierServiceStub(channel).GetSlab(GetSlabRequest(), timeout=60)
        if slab.num_lanes_in_use or slab.kv_live_bytes:
            found.append(f"{worker.log.stem} holds {slab.num_lanes_in_use} lanes, {slab.kv_live_bytes} live bytes")
    return found


def _in_redis(made: Runtime, pool: Pool) -> list[str]:
    """Keys that stay, but not those that pass by themselves."""
    with redis.Redis.from_url(made.redis.url, decode_responses=True, protocol=2) as store:
        found = []
        for key in store.scan_iter(count=1000):
            passes = any(
                f":{kind}:" in f"{key}:" and 0 <= store.ttl(key) <= most for kind, most in _PASSING_SECONDS.items()
            )
            if passes or pool.stays(key):
                continue
            found.append(f"Redis holds {key!r} ({store.type(key)})")
        members = store.smembers("kakeya:pools")
        return found + [f"Redis still lists the pool {name!r}" for name in members if name != pool.name]


def num_keys(made: Runtime) -> int:
    with redis.Redis.from_url(made.redis.url, protocol=2) as store:
        return int(store.dbsize())
