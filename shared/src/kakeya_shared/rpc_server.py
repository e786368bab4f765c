"""A gRPC server of Kakeya: our services behind the boundary, health checking v1 and reflection."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from kakeya_shared.addresses import HostPort
from kakeya_shared.rpc_boundary import Guard, RpcBoundary

# Keepalive finds half-open connections; a client may ping an idle connection every 10 s.
_OPTIONS = [
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.so_reuseport", 0),
]


class BindError(Exception):
    """The address cannot be listened on."""


class RpcServer:
    """Register services on `grpc_server`, then use as a context manager.

    Args:
        bind: HOST:PORT; port 0 takes a free one.
        services: full names of the services, for health and reflection.
        grace_seconds: how long running calls may take to end when the server stops.
        max_message_bytes: of one request.
        guard: see `rpc_boundary.Guard`.

    Attributes:
        address: what is listened on, with the real port, once started.
    """

    def __init__(
        self,
        bind: str,
        services: Sequence[str],
        *,
        grace_seconds: float = 5.0,
        max_message_bytes: int = 4 << 20,
        guard: Guard | None = None,
    ) -> None:
        self.grpc_server = grpc.aio.server(
            interceptors=[RpcBoundary(guard)],
            options=[*_OPTIONS, ("grpc.max_receive_message_length", max_message_bytes)],
        )
        self._bind = HostPort.parse(bind)
        self._services = tuple(services)
        self._grace_seconds = grace_seconds
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # grpc_health hides its asyncio half
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.grpc_server)
        reflection.enable_server_reflection((*services, health.SERVICE_NAME, reflection.SERVICE_NAME), self.grpc_server)
        self.address = ""

    async def __aenter__(self) -> Self:
        """Starts to listen, NOT_SERVING at first. Raises BindError."""
        await self.set_serving(False)
        try:
            port = self.grpc_server.add_insecure_port(str(self._bind))
        except RuntimeError as error:
            raise BindError(f"cannot listen on {self._bind}: is it in use?") from error
        await self.grpc_server.start()
        self.address = str(HostPort(self._bind.host, port))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._health.enter_graceful_shutdown()
        await self.grpc_server.stop(self._grace_seconds)

    async def set_serving(self, serving: bool) -> None:
        """Sets the health of the server as a whole and of each service."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in ("", *self._services):
            await self._health.set(service, status)
