"""Calls of the operators' service."""

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from google.protobuf.message import Message

from kakeya._sync.client import Client
from kakeya._transport import _api_key
from kakeya._transport._blocking_transport import Transport
from kakeya.cli.flags.connection import Connection
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from kakeya_stubs.admin.v1 import admin_pb2_grpc

_CALL_SECONDS = 30.0
# Lists of keys, tokens and tenants come in one answer; gRPC's own 4 MiB would hold some ten thousand keys.
_MAX_ANSWER_BYTES = 256 << 20


class AdminCalls:
    """kakeya.admin.v1.AdminService of one router; a context manager that disconnects.

    Attributes:
        connection: how it is reached.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._key = _api_key.choose(connection.api_key)
        service = admin_pb2_grpc.AdminServiceStub
        self._transport = Transport(
            connection.address, connection.credentials, service=service, max_answer_bytes=_MAX_ANSWER_BYTES
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transport.close()

    def watch(self) -> Iterator[pb.WatchResponse]:
        """What runs, from now on. Raises KakeyaError."""
        connection = self.connection
        with Client(connection.address, api_key=connection.api_key, credentials=connection.credentials) as client:
            yield from client.watch_responses()

    def call(self, method: str, request: Message) -> Any:
        """The response. Raises KakeyaError."""
        return self._transport.unary(
            method, request, timeout_seconds=_CALL_SECONDS, metadata=_api_key.metadata(self._key)
        )
