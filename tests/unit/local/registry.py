"""A router as far as a local stack and the doctor look at one."""

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from kakeya_stubs.admin.v1 import admin_pb2
from kakeya_stubs.admin.v1.admin_pb2_grpc import AdminServiceServicer, add_AdminServiceServicer_to_server


class Registry(AdminServiceServicer):
    """Says what it is told to say.

    Attributes:
        pages: of session ids, for one listing after the other; the last listing is without sessions.
        key: that callers must show; "" for none.
        refuses_with, refusal: how the others are refused, and in which words.
    """

    def __init__(self) -> None:
        self.workers: list[admin_pb2.WorkerStatus] = []
        self.pages: list[tuple[list[str], str]] = []
        self.key = ""
        self.refusal = "not for you"
        self.refuses_with = grpc.StatusCode.UNAUTHENTICATED

    def ListWorkers(self, request: Any, context: Any) -> admin_pb2.ListWorkersResponse:
        self._let_in(context)
        return admin_pb2.ListWorkersResponse(workers=self.workers)

    def ListSessions(self, request: Any, context: Any) -> admin_pb2.ListSessionsResponse:
        self._let_in(context)
        session_ids, next_page = self.pages.pop(0) if self.pages else ([], "")
        sessions = [admin_pb2.Session(session_id=session_id) for session_id in session_ids]
        return admin_pb2.ListSessionsResponse(sessions=sessions, next_page_token=next_page)

    def _let_in(self, context: Any) -> None:
        if self.key and dict(context.invocation_metadata()).get("authorization") != f"Bearer {self.key}":
            context.abort(self.refuses_with, self.refusal)


@contextmanager
def serving_registry(
    condition: Any = health_pb2.HealthCheckResponse.SERVING,
) -> Iterator[tuple[str, Registry]]:
    """Its address and itself, until the end."""
    server = grpc.server(futures.ThreadPoolExecutor(2))
    servicer, status = Registry(), health.HealthServicer()
    add_AdminServiceServicer_to_server(servicer, server)
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    status.set("", condition)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}", servicer
    finally:
        server.stop(None).wait()
