"""What answers on the network."""

from collections.abc import AsyncIterator

import grpc

from kakeya.cli.commands import cure
from kakeya.cli.flags.connection import Connection
from kakeya_local.doctor import local_network
from kakeya_local.doctor.findings import Condition, Finding
from kakeya_local.doctor.redis_ping import ping
from kakeya_local.stack.readiness import health, list_workers, open_channel
from kakeya_stubs.admin.v1.admin_pb2 import WorkerStatus

_AREA = "reachable"
_STALE_HEARTBEAT_SECONDS = 12.0  # two are missing
_NO_ANSWER = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


async def probe_router(connection: Connection, *, asked_for: bool) -> AsyncIterator[Finding]:
    """A router and its workers; wrong only where the user asked for it."""
    amiss = Condition.WRONG if asked_for else Condition.ABSENT
    async with open_channel(connection) as channel:
        router = await _router(channel, connection, amiss)
        yield router
        if router.condition is not Condition.OK:
            return
        try:
            workers = await list_workers(channel, connection.metadata)
        except grpc.aio.AioRpcError as error:
            yield _unlisted(error, connection, amiss)
            return
        if not workers:
            start = f"start one with `kakeya worker --model DIR --join {connection.address}`"
            yield Finding(_AREA, "workers", amiss, "none has joined the router", start)
        for worker in workers:
            yield _worker(worker, amiss)


async def _router(channel: grpc.aio.Channel, connection: Connection, amiss: Condition) -> Finding:
    address = connection.address
    try:
        health_status = await health(channel)
    except grpc.aio.AioRpcError as error:
        details = " ".join((error.details() or "").split())
        if local_network.keeps_away(address, details):
            said = f"{address} answers a ping, and connecting says {details!r}: macOS keeps this program from hosts of "
            return Finding(_AREA, "router", amiss, f"{said}the local network", local_network.CURE)
        if error.code() in _NO_ANSWER:
            said, cures = f"no runtime answers at {address} ({details})", cure.unreachable(details, connection)
        else:
            said, cures = f"{address} answers {error.code().name} ({details})", "check that a router listens there"
        return Finding(_AREA, "router", amiss, said, cures)
    if health_status != "SERVING":
        reason = await _reason_not_serving(channel, connection)
        said, cures = f"the router at {address} is {health_status}{reason}", "check that it reaches its Redis"
        return Finding(_AREA, "router", amiss, said, cures)
    return Finding(_AREA, "router", Condition.OK, f"serving at {address}")


async def _reason_not_serving(channel: grpc.aio.Channel, connection: Connection) -> str:
    """What a call that needs Redis is refused with."""
    try:
        await list_workers(channel, connection.metadata)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            return f": {error.details()}"
    return " (its log says why)"


def _unlisted(error: grpc.aio.AioRpcError, connection: Connection, amiss: Condition) -> Finding:
    """Why the workers cannot be seen: that the router keeps them from this caller is no fault, but a bad key is."""
    if error.code() is grpc.StatusCode.UNAUTHENTICATED and connection.api_key:
        return Finding(
            _AREA, "workers", Condition.WRONG, f"the router refuses the key: {error.details()}", cure.BAD_KEY
        )
    if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        admin = f"{cure.NO_KEY}, with a key that has the scope admin"
        return Finding(_AREA, "workers", Condition.ABSENT, "the router shows them to administrators only", admin)
    return Finding(_AREA, "workers", amiss, f"the router does not list them: {error.details()}", "see its log")


def probe_redis(url: str) -> Finding:
    """The Redis that the user asked for."""
    try:
        policy = ping(url)
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        return Finding(_AREA, "redis", Condition.WRONG, problem, "check the URL, and that the server runs")
    if policy:
        drops = f"drops keys, and with them sessions, when its memory is full (maxmemory-policy {policy})"
        return Finding(_AREA, "redis", Condition.WRONG, drops, "set its maxmemory-policy to noeviction")
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
