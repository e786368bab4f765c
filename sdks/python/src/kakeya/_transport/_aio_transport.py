"""The wire for the async client; `_blocking_transport` is the twin that `scripts/unasync.py` puts in its place."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from kakeya._spans._tracing import Metadata
from kakeya._transport import _channel
from kakeya._transport._rpc_errors import translate
from kakeya.errors import Cancelled, DeadlineExceeded
from kakeya_stubs.admin.v1 import admin_pb2, admin_pb2_grpc
from kakeya_stubs.v1 import runtime_pb2_grpc

T = TypeVar("T")
Eventual: TypeAlias = Awaitable[T]
"""What an async function of the client gives back; for the blocking client it is the value itself."""

sleep = asyncio.sleep


class Stream:
    """A running call with a stream of responses."""

    def __init__(self, call: "grpc.aio.UnaryStreamCall[Any, Any]", address: str) -> None:
        self._call = call
        self._address = address
        self._is_late = False

    async def read(self, within_seconds: float | None = None) -> Any:
        """The next response, None at the end. Raises KakeyaError; DeadlineExceeded where it does not come in time."""
        timer = None
        if within_seconds is not None:
            timer = asyncio.get_running_loop().call_later(within_seconds, self._give_up)
        try:
            response = await _answer(self._call.read(), self._address)
        except BaseException as error:
            self._call.cancel()
            if self._is_late and isinstance(error, Cancelled):
                raise DeadlineExceeded(f"no answer within {within_seconds:g} s") from None
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return None if response is grpc.aio.EOF else response

    async def header(self, key: str) -> str:
        """A value of the initial metadata, "" if it is not there. Does not wait once a response was read."""
        return str(dict(await self._call.initial_metadata() or ()).get(key, ""))

    def cancel(self) -> None:
        """Tells the server to stop; nothing happens if the call is over."""
        self._call.cancel()

    def _give_up(self) -> None:
        self._is_late = True
        self._call.cancel()


class Errands:
    """Work that goes on while nobody waits for it."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.create_task(work())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def wait(self, seconds: float) -> None:
        """Until all of it is done, but no longer than that."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)


class Transport:
    """A connection to a runtime, opened by the first call, since it belongs to the running event loop."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None) -> None:
        self._address = address
        self._credentials = credentials
        self._channel: grpc.aio.Channel | None = None
        self._stub: Any = None
        self._admin_stub: Any = None

    async def unary(self, method: str, request: Message, *, timeout_seconds: float | None, metadata: Metadata) -> Any:
        """One response. Raises KakeyaError."""
        self._open()
        call = getattr(self._stub, method)(request, timeout=timeout_seconds, metadata=metadata)
        return await _answer(call, self._address)

    def stream(self, method: str, request: Message, *, timeout_seconds: float | None, metadata: Metadata) -> Stream:
        """Starts a call with a stream of responses."""
        self._open()
        call = getattr(self._stub, method)(request, timeout=timeout_seconds, metadata=metadata)
        return Stream(call, self._address)

    def watch(self, request: admin_pb2.WatchRequest, *, metadata: Metadata) -> Stream:
        """Starts the one call of the operators' service that every client may make, without a deadline."""
        self._open()
        call = self._admin_stub.Watch(request, metadata=metadata)
        return Stream(call, self._address)

    async def close(self) -> None:
        """Cancels what is running and disconnects."""
        if self._channel is not None:
            await self._channel.close()

    def _open(self) -> None:
        if self._channel is not None:
            return
        options = _channel.options(self._address)
        if self._credentials is None:
            self._channel = grpc.aio.insecure_channel(self._address, options)
        else:
            self._channel = grpc.aio.secure_channel(self._address, self._credentials, options)
        self._stub = runtime_pb2_grpc.RuntimeServiceStub(self._channel)
        self._admin_stub = admin_pb2_grpc.AdminServiceStub(self._channel)


async def _answer(answer: Awaitable[T], address: str) -> T:
    # Cancellation as asyncio means it. gRPC raises CancelledError also when the call was cancelled or its channel
    # closed, and not this task; and it swallows a cancellation of the task that meets the response.
    num_cancellations = _num_cancellations()
    try:
        result = await answer
    except grpc.RpcError as error:
        raise translate(error, address) from error
    except asyncio.CancelledError:
        if _num_cancellations() == 0:
            raise Cancelled("the call was cancelled from this side") from None
        raise
    _raise_if_cancelled_since(num_cancellations)
    return result


def _raise_if_cancelled_since(num_cancellations: int) -> None:
    if _num_cancellations() > num_cancellations:
        raise asyncio.CancelledError


def _num_cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0
