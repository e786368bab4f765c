"""Whether a router serves, which workers have joined it, and which sessions are open."""

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kakeya._transport import _proxy
from kakeya.cli.flags.connection import Connection
from kakeya_shared.rpc import proxies
from kakeya_shared.settings.redis_url import TIMEOUT_SECONDS
from kakeya_stubs.admin.v1 import admin_pb2
from kakeya_stubs.admin.v1.admin_pb2_grpc import AdminServiceStub

_CALL_SECONDS = 2.0
_LIST_SECONDS = TIMEOUT_SECONDS + 2.0  # the router may wait so long for its Redis, and then says so

Metadata = tuple[tuple[str, str], ...]


def open_channel(connection: Connection, *, is_own: bool = False) -> grpc.aio.Channel:
    """A channel to a router; an async context manager that closes it.

    Args:
        is_own: it is on this machine, whatever its address: no proxy is asked.
    """
    address = connection.address
    options = [proxies.PAST_PROXY] if is_own else _proxy.options(address)
    if connection.credentials is None:
        return grpc.aio.insecure_channel(address, options)
    return grpc.aio.secure_channel(address, connection.credentials, options)


async def is_serving(channel: grpc.aio.Channel) -> bool:
    """Whether the server answers SERVING (gRPC health v1)."""
    try:
        return await health(channel) == "SERVING"
    except grpc.aio.AioRpcError:
        return False


async def health(channel: grpc.aio.Channel) -> str:
    """What the server answers, e.g. "NOT_SERVING" (gRPC health v1). Raises grpc.aio.AioRpcError."""
    request = health_pb2.HealthCheckRequest()
    response = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=_CALL_SECONDS)
    return health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)


async def joined_workers(channel: grpc.aio.Channel, metadata: Metadata = ()) -> list[admin_pb2.WorkerStatus]:
    """The workers that the router knows, by id; none while it does not answer."""
    try:
        return await list_workers(channel, metadata)
    except grpc.aio.AioRpcError:
        return []


async def list_workers(channel: grpc.aio.Channel, metadata: Metadata) -> list[admin_pb2.WorkerStatus]:
    """The workers that the router knows, by id. Raises grpc.aio.AioRpcError."""
    stub = AdminServiceStub(channel)
    response = await stub.ListWorkers(admin_pb2.ListWorkersRequest(), metadata=metadata, timeout=_LIST_SECONDS)
    return sorted(response.workers, key=lambda worker: worker.worker_id)


async def list_sessions(channel: grpc.aio.Channel, metadata: Metadata) -> list[str]:
    """The ids of all open sessions. Raises grpc.aio.AioRpcError."""
    stub, sessions = AdminServiceStub(channel), list[str]()
    request = admin_pb2.ListSessionsRequest()
    while True:
        response = await stub.ListSessions(request, metadata=metadata, timeout=_LIST_SECONDS)
        sessions += [session.session_id for session in response.sessions]
        if not response.next_page_token:
            return sessions
        request.page_token = response.next_page_token
