"""A gRPC proxy before routers, which can stop and break off calls at each message of their answers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import grpc

from tests.ports import free_port

_STREAMS = ("Turn", "Generate")
_OF_HTTP = ("user-agent", ":")
Between = Callable[[int], Awaitable[None]]


class Cut(Exception):
    """Breaks off the call in which it is raised.

    Args:
        is_told: the router is told; else its call stays open and is not read any more.
    """

    def __init__(self, *, is_told: bool = True) -> None:
        super().__init__("cut")
        self.is_told = is_told


async def _nothing(number: int) -> None:
    """Happens."""


class MessageProxy:
    """Passes on all calls to a router, in bytes. Use `message_proxy` to make one.

    Attributes:
        router: where calls go from now on.
        between: awaited for each message of a Turn's answer (0: the first) once the router has sent it and before it is
            passed on, and once more after the last; what it raises ends the call.
        calls: the methods that came, in order.
    """

    def __init__(self, router: str, address: str) -> None:
        self.router = router
        self.address = address
        self.between: Between = _nothing
        self.calls: list[str] = []
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._abandoned: list[Any] = []

    async def close(self) -> None:
        for call in self._abandoned:
            call.cancel()
        for channel in self._channels.values():
            await channel.close()

    def handler(self, details: Any) -> "grpc.RpcMethodHandler[Any, Any]":
        """What answers a method."""
        path, method = details.method, details.method.rpartition("/")[2]
        self.calls.append(method)
        if method not in _STREAMS:
            return grpc.unary_unary_rpc_method_handler(self._unary(path))
        return grpc.unary_stream_rpc_method_handler(self._stream(path, watched=method == "Turn"))

    def _unary(self, path: str) -> Any:
        async def unary(request: bytes, context: Any) -> bytes:
            call = self._channel().unary_unary(path)(request, **_like(context))
            try:
                answer: bytes = await call
            except grpc.aio.AioRpcError as error:
                await _fail(context, error)
                raise AssertionError("an abort raises") from None
            return answer

        return unary

    def _stream(self, path: str, *, watched: bool) -> Any:
        async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
            between = self.between if watched else _nothing
            call = self._channel().unary_stream(path)(request, **_like(context))
            is_abandoned = False
            try:
                for number in count():
                    message = await call.read()
                    if message is not grpc.aio.EOF and number == 0:
                        await context.send_initial_metadata(tuple(await call.initial_metadata()))
                    await between(number)
                    if message is grpc.aio.EOF:
                        return
                    yield message
            except Cut as cut:
                is_abandoned = not cut.is_told
                await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
            except grpc.aio.AioRpcError as error:
                await _fail(context, error)
            finally:
                if is_abandoned:
                    self._abandoned.append(call)
                else:
                    call.cancel()

        return stream

    def _channel(self) -> Any:
        if self.router not in self._channels:
            self._channels[self.router] = grpc.aio.insecure_channel(self.router)
        return self._channels[self.router]


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, proxy: MessageProxy) -> None:
        self._proxy = proxy

    def service(self, handler_call_details: Any) -> Any:
        return self._proxy.handler(handler_call_details)


@asynccontextmanager
async def message_proxy(router: str) -> AsyncIterator[MessageProxy]:
    server = grpc.aio.server()
    proxy = MessageProxy(router, f"127.0.0.1:{free_port()}")
    server.add_generic_rpc_handlers((_Handlers(proxy),))
    server.add_insecure_port(proxy.address)
    await server.start()
    try:
        yield proxy
    finally:
        await server.stop(0)
        await proxy.close()


def at(number: int, do: Callable[[], Awaitable[None]]) -> Between:
    """Does it once, at that message."""
    is_done = False

    async def between(message: int) -> None:
        nonlocal is_done
        if message == number and not is_done:
            is_done = True
            await do()

    return between


async def hold() -> None:
    """For ever, until the call is cancelled."""
    await asyncio.Event().wait()


def _like(context: Any) -> dict[str, Any]:
    metadata = tuple(item for item in context.invocation_metadata() if not item[0].startswith(_OF_HTTP))
    return {"timeout": context.time_remaining(), "metadata": metadata}


async def _fail(context: Any, error: grpc.aio.AioRpcError) -> None:
    context.set_trailing_metadata(tuple(error.trailing_metadata()))
    await context.abort(error.code(), error.details() or "")
