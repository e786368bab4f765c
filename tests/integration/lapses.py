"""Times that are over in Redis, without waiting for them."""

import time
from typing import Protocol

from redis import Redis

from tests.redis_server import RedisServer

_DROP_SECONDS = 60.0
"""What no machine takes, however busy: until a router's reaper has seen that a lease is over."""


class Lapsing(Protocol):
    """A worker; one that is reached through tunnels has no address."""

    @property
    def address(self) -> str: ...

    @property
    def incarnation(self) -> str: ...


class Lapses:
    """Of a runtime with a Redis of its own."""

    redis: RedisServer

    def lapse(self, worker: Lapsing) -> None:
        """Has a worker's lease lapse that is dead or stopped, as where it has been silent for so long.

        Returns once a router has dropped it: a heartbeat of its last moment, which a router had not written yet,
        renews the lease.
        """
        field, said = ("address", worker.address) if worker.address else ("incarnation", worker.incarnation)
        with self._state() as state:
            for workers in state.scan_iter("kakeya:{*}:workers"):
                for worker_id in state.zrange(workers, 0, -1):
                    if state.hget(f"{workers.removesuffix('s')}:{worker_id}", field) == said:
                        _lapse_until_dropped(state, workers, worker_id)

    def lapse_operation(self, session_id: str) -> None:
        """Has the operation's lease lapse that a dead router holds on a session."""
        with self._state() as state:
            state.hset(f"kakeya:{{{session_id.partition('.')[0]}}}:op:{session_id}", "lease_until_ms", 1)

    def expire(self, session_id: str) -> bool:
        """Has a session's time be over; whether it is still there. The end of an operation gives it a new time."""
        expiry = f"kakeya:{{{session_id.partition('.')[0]}}}:expiry"
        with self._state() as state:
            state.zadd(expiry, {session_id: 1}, xx=True)
            return state.zscore(expiry, session_id) is not None

    def _state(self) -> Redis:
        return Redis.from_url(self.redis.url, decode_responses=True, protocol=2)


def _lapse_until_dropped(state: Redis, workers: str, worker_id: str) -> None:
    deadline = time.monotonic() + _DROP_SECONDS
    while state.zadd(workers, {worker_id: 1}, xx=True, ch=True) or state.zscore(workers, worker_id) is not None:
        assert time.monotonic() < deadline, f"no router drops {worker_id}"
        time.sleep(0.02)  # nobody tells when a router has looked
