"""A gRPC server of Kakeya: our services behind the boundary, health checking v1 and reflection."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from kakeya_shared.rpc.rpc_boundary import Context, Guard, RpcBoundary
from kakeya_shared.rpc.served_calls import CallMeters
from kakeya_shared.rpc.tls import ServerTls, TlsError
from kakeya_shared.settings.addresses import HostPort
from kakeya_shared.settings.service import RpcServerSettings

_log = structlog.get_logger()

# Far above what a router lets in at once, which refuses the rest with a reason; a few hundred MB of headers at worst.
_MAX_PENDING_CALLS = 32_768


class Health(health.aio.HealthServicer):  # type: ignore[name-defined,misc]  # grpc_health hides its asyncio half
    """gRPC health checking v1, with the rpc that the library leaves out."""

    async def List(self, request: health_pb2.HealthListRequest, context: Context) -> health_pb2.HealthListResponse:  # noqa: N802  # rpc name
        statuses = {
            service: health_pb2.HealthCheckResponse(status=status) for service, status in self._server_status.items()
        }
        return health_pb2.HealthListResponse(statuses=statuses)


class BindError(Exception):
    """The address cannot be listened on."""


class RpcServer:
    """Register services on `grpc_server`, then use as a context manager.

    Args:
        bind: HOST:PORT, where port 0 takes a free one; or the path of a socket, in a directory of this process's alone.
        services: full names of the services, for health and reflection.
        settings: TLS and limits; None for plaintext and the default limits.
        grace_seconds: how long running calls may take to end when the server stops.
        guard: see `rpc_boundary.Guard`.
        meters: of the calls; None counts none.

    Attributes:
        address: what is listened on, with the real port, once started.
        socket: the path of the socket that is listened on; None: a port is.
    """

    def __init__(
        self,
        bind: str | Path,
        services: Sequence[str],
        *,
        settings: RpcServerSettings | None = None,
        grace_seconds: float = 5.0,
        guard: Guard | None = None,
        meters: CallMeters | None = None,
    ) -> None:
        self._settings = settings or RpcServerSettings.model_construct()  # the defaults, whatever the environment says
        self.grpc_server = grpc.aio.server(interceptors=[RpcBoundary(guard, meters)], options=_options(self._settings))
        self.socket = bind if isinstance(bind, Path) else None
        self._bind = HostPort.parse(bind) if isinstance(bind, str) else HostPort("", 0)
        self._services = tuple(services)
        self._grace_seconds = grace_seconds
        self._health = Health()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.grpc_server)
        reflection.enable_server_reflection((*services, health.SERVICE_NAME, reflection.SERVICE_NAME), self.grpc_server)
        self.address = ""
        self._leaving: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        """Starts to listen, NOT_SERVING at first. Raises BindError: the address is taken, or the TLS files are bad."""
        await self.set_serving(False)
        port = self._add_port()
        await self.grpc_server.start()
        if self.socket is not None:
            self.address = f"unix:{self.socket}"
            return self
        self.address = str(HostPort(self._bind.host, port))
        for warning in self._settings.dangers(self._bind.host):
            _log.warning(warning, address=self.address)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._health.enter_graceful_shutdown()
        await self.grpc_server.stop(self._grace_seconds)
        if self._leaving is not None:
            await self._leaving

    def turn_away(self, grace_seconds: float) -> None:
        """Has clients make their next calls elsewhere: no connection is accepted, and those that there are take no new
        call. Calls that run go on, at most for so long.

        A refusal of each call would not do. A client keeps the connection that it has, to this server.
        """
        self._leaving = asyncio.ensure_future(self.grpc_server.stop(grace_seconds))

    async def set_serving(self, serving: bool) -> None:
        """Sets the health of the server as a whole and of each service."""
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in ("", *self._services):
            await self._health.set(service, status)

    def _add_port(self) -> int:
        try:
            if self.socket is not None:
                return self.grpc_server.add_insecure_port(f"unix:{self.socket}")
            tls = _tls(self._settings)
            if tls is None:
                return self.grpc_server.add_insecure_port(str(self._bind))
            return self.grpc_server.add_secure_port(str(self._bind), tls.credentials())
        except TlsError as error:
            raise BindError(str(error)) from error
        except RuntimeError as error:
            raise BindError(f"cannot listen on {self._bind}: is it in use?") from error


def _tls(settings: RpcServerSettings) -> ServerTls | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return ServerTls(settings.tls_cert, settings.tls_key, settings.tls_client_ca)


def _options(settings: RpcServerSettings) -> list[tuple[str, int]]:
    age_ms = _milliseconds(settings.max_connection_age_seconds)
    return [
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        # Between the two gRPC would draw lots.
        ("grpc.max_metadata_size", settings.max_metadata_bytes),
        ("grpc.absolute_max_metadata_size", settings.max_metadata_bytes),
        ("grpc.max_concurrent_streams", settings.max_concurrent_streams),
        # Calls that wait for the event loop to look at them; above 1,000 gRPC would cancel some without a reason.
        ("grpc.server.max_pending_requests", _MAX_PENDING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", 2 * _MAX_PENDING_CALLS),
        ("grpc.max_connection_idle_ms", _milliseconds(settings.max_connection_idle_seconds)),
        # gRPC takes a tenth more or less, so that connections which began together do not end together.
        *([("grpc.max_connection_age_ms", age_ms)] if age_ms else []),
        # Half-open connections are found, those without calls too. Where gRPC sees a ping unanswered it waits for
        # ping_timeout, a minute by default, whatever keepalive_timeout says.
        ("grpc.keepalive_time_ms", _milliseconds(settings.keepalive_seconds)),
        ("grpc.keepalive_timeout_ms", _milliseconds(settings.keepalive_timeout_seconds)),
        ("grpc.http2.ping_timeout_ms", _milliseconds(settings.keepalive_timeout_seconds)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # A client may ping an idle connection every 10 s.
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.so_reuseport", 0),
    ]


def _milliseconds(seconds: float) -> int:
    return min(round(seconds * 1000), (1 << 31) - 1)
