"""What answers on the network."""

from collections.abc import AsyncIterator

import grpc

from kakeya_local.findings import Condition, Finding
from kakeya_local.readiness import is_serving, joined_workers
from kakeya_local.redis_ping import ping
from kakeya_stubs.admin.v1.admin_pb2 import WorkerStatus

_AREA = "reachable"
_STALE_HEARTBEAT_SECONDS = 5.0


async def probe_router(address: str, *, asked_for: bool) -> AsyncIterator[Finding]:
    """The router at HOST:PORT and its workers; wrong only where the user asked for it."""
    amiss = Condition.WRONG if asked_for else Condition.ABSENT
    async with grpc.aio.insecure_channel(address) as channel:
        if not await is_serving(channel):
            cure = "start one with `kakeya up`, or check that it reaches its Redis (its log says so)"
            yield Finding(_AREA, "router", amiss, f"nothing serves at {address}", cure)
            return
        yield Finding(_AREA, "router", Condition.OK, f"serving at {address}")
        workers = await joined_workers(channel)
        if not workers:
            cure = f"start one with `kakeya worker --model DIR --join {address}`"
            yield Finding(_AREA, "workers", amiss, "none has joined the router", cure)
        for worker in workers:
            yield _worker(worker, amiss)


def probe_redis(url: str) -> Finding:
    """The Redis that the user asked for."""
    try:
        ping(url)
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        return Finding(_AREA, "redis", Condition.WRONG, problem, "check the URL, and that the server runs")
    return Finding(_AREA, "redis", Condition.OK, "answers PING")


def _worker(worker: WorkerStatus, amiss: Condition) -> Finding:
    detail = (
        f"{worker.model} ({worker.backend}, {worker.weights}{', exact' if worker.exact else ''}) at {worker.address}, "
        f"{worker.num_sessions} of {worker.num_lanes} lanes in use"
    )
    subject = f"worker {worker.worker_id}"
    age_seconds = worker.last_heartbeat_age_seconds
    if age_seconds > _STALE_HEARTBEAT_SECONDS:
        silence = f"{detail}, silent for {age_seconds:.0f} s"
        return Finding(_AREA, subject, amiss, silence, "see its log; it may be overloaded or cut off")
    return Finding(_AREA, subject, Condition.OK, detail)
