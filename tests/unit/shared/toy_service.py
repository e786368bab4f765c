"""A service without a runtime, behind the boundary that all our services have."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from kakeya_shared.errors.tree import NoCapacity
from kakeya_shared.rpc.rpc_boundary import Context
from kakeya_shared.rpc.served_calls import tell
from kakeya_shared.rpc.server import RpcServer
from kakeya_shared.settings.service import RpcServerSettings
from kakeya_stubs.v1 import runtime_pb2 as pb
from kakeya_stubs.v1.runtime_pb2_grpc import RuntimeServiceServicer, add_RuntimeServiceServicer_to_server

SERVICE = "kakeya.v1.RuntimeService"


class Toy(RuntimeServiceServicer):
    """Does by session id what a service could do."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.sleeping: asyncio.Task[Any] | None = None
        self.peers: set[str] = set()  # whose connections calls came on

    async def CloseSession(self, request: pb.CloseSessionRequest, context: Context) -> pb.CloseSessionResponse:
        self.peers.add(context.peer())
        if request.session_id == "full":
            raise NoCapacity("full", retry_after_seconds=2.0)
        if request.session_id == "broken":
            raise ValueError("a secret")
        if request.session_id == "abort":
            await context.abort(grpc.StatusCode.DATA_LOSS, "by hand")
        if request.session_id == "slow":
            self.sleeping = asyncio.current_task()
            await asyncio.sleep(60)
        tell(history_length=7)
        return pb.CloseSessionResponse(final_history_length=7)

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> AsyncIterator[pb.GenerateResponse]:
        try:
            for token_id in range(request.max_tokens):
                yield pb.GenerateResponse(token_id=token_id)
                await asyncio.sleep(0.001)
            if request.session_id == "full":
                raise NoCapacity("full")
        finally:
            self.closed.set()


@asynccontextmanager
async def serving(bind: str | Path = "127.0.0.1:0", **settings: Any) -> AsyncIterator[tuple[RpcServer, Toy]]:
    """A server with these settings, else the defaults."""
    toy = Toy()
    server = RpcServer(bind, [SERVICE], settings=RpcServerSettings.model_construct(**settings), grace_seconds=0)
    add_RuntimeServiceServicer_to_server(toy, server.grpc_server)
    async with server:
        yield server, toy
