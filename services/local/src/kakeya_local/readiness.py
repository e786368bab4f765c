"""Whether a router serves, and which workers have joined it."""

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kakeya_stubs.admin.v1 import admin_pb2
from kakeya_stubs.admin.v1.admin_pb2_grpc import AdminServiceStub

_CALL_SECONDS = 2.0


async def is_serving(channel: grpc.aio.Channel) -> bool:
    """Whether the server answers SERVING (gRPC health v1)."""
    try:
        response = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(), timeout=_CALL_SECONDS
        )
    except grpc.aio.AioRpcError:
        return False
    return bool(response.status == health_pb2.HealthCheckResponse.SERVING)


async def joined_workers(channel: grpc.aio.Channel) -> list[admin_pb2.WorkerStatus]:
    """The workers that the router knows, by id; none while it does not answer."""
    try:
        response = await AdminServiceStub(channel).ListWorkers(admin_pb2.ListWorkersRequest(), timeout=_CALL_SECONDS)
    except grpc.aio.AioRpcError:
        return []
    return sorted(response.workers, key=lambda worker: worker.worker_id)
