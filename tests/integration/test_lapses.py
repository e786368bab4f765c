"""That a lease which a test has lapse stays lapsed."""

import threading
from types import SimpleNamespace

from redis import Redis

from tests.integration.lapses import Lapses
from tests.integration.processes import wait_until
from tests.redis_server import redis_server

WORKERS, RECORD = "kakeya:{p}:workers", "kakeya:{p}:worker:w"
FAR_MS = 10**13


def test_a_heartbeat_that_was_on_its_way_does_not_keep_a_worker() -> None:
    lapses = Lapses()
    with redis_server() as lapses.redis:
        state = Redis.from_url(lapses.redis.url, decode_responses=True, protocol=2)
        state.hset(RECORD, "address", "host:1")
        state.zadd(WORKERS, {"w": FAR_MS})

        def lapsed() -> bool:
            return state.zscore(WORKERS, "w") == 1

        def drop_late() -> None:
            """As a router: it writes the heartbeat that it has first, and its reaper looks after that."""
            wait_until(lapsed, "the lease lapses")
            state.zadd(WORKERS, {"w": FAR_MS})
            wait_until(lapsed, "it lapses again")
            state.zrem(WORKERS, "w")

        router = threading.Thread(target=drop_late)
        router.start()
        lapses.lapse(SimpleNamespace(address="host:1", incarnation=""))
        assert state.zscore(WORKERS, "w") is None
        router.join()
        state.close()
