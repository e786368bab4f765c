"""The wire for the blocking client; the twin of `_aio_transport`."""

import threading
import time
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from kakeya._spans._tracing import Metadata
from kakeya._transport import _channel
from kakeya._transport._rpc_errors import translate
from kakeya.errors import Cancelled, DeadlineExceeded, KakeyaError
from kakeya_stubs.admin.v1 import admin_pb2, admin_pb2_grpc
from kakeya_stubs.v1 import runtime_pb2_grpc

T = TypeVar("T")
Eventual: TypeAlias = Annotated[T, "at once"]
"""What a function of the client gives back; for the async client it is an awaitable."""

sleep = time.sleep


class Stream:
    """A running call with a stream of responses."""

    def __init__(self, call: Any, translated: Callable[[grpc.RpcError], KakeyaError]) -> None:
        self._call = call
        self._translated = translated
        self._is_late = False

    def read(self, within_seconds: float | None = None) -> Any:
        """The next response, None at the end. Raises KakeyaError; DeadlineExceeded where it does not come in time."""
        timer = None
        if within_seconds is not None:
            timer = threading.Timer(within_seconds, self._give_up)
            timer.daemon = True
            timer.start()
        try:
            return next(self._call, None)
        except grpc.RpcError as error:
            if self._is_late and error.code() is grpc.StatusCode.CANCELLED:
                raise DeadlineExceeded(f"no answer within {within_seconds:g} s") from None
            raise self._translated(error) from error
        except BaseException:  # Ctrl-C, above all, while this waits
            self._call.cancel()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def header(self, key: str) -> str:
        """A value of the initial metadata, "" if it is not there. Does not wait once a response was read."""
        return str(dict(self._call.initial_metadata() or ()).get(key, ""))

    def cancel(self) -> None:
        """Tells the server to stop; nothing happens if the call is over."""
        self._call.cancel()

    def _give_up(self) -> None:
        self._is_late = True
        self._call.cancel()


class Errands:
    """Work that goes on while nobody waits for it."""

    def __init__(self) -> None:
        self._running: list[threading.Thread] = []

    def start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name="kakeya-errand", daemon=True)
        self._running = [each for each in self._running if each.is_alive()] + [thread]
        thread.start()

    def wait(self, seconds: float) -> None:
        """Until all of it is done, but no longer than that."""
        until = time.monotonic() + seconds
        for thread in self._running:
            thread.join(max(0.0, until - time.monotonic()))


class Transport:
    """A connection to a runtime.

    Args:
        service: the stub of the service whose methods are called.
        max_answer_bytes: of one response; None takes gRPC's own limit, 4 MiB.
    """

    def __init__(
        self,
        address: str,
        credentials: grpc.ChannelCredentials | None,
        *,
        service: Callable[[grpc.Channel], Any] = runtime_pb2_grpc.RuntimeServiceStub,
        max_answer_bytes: int | None = None,
    ) -> None:
        self._address = address
        options = _channel.options(address)
        if max_answer_bytes is not None:
            options.append(("grpc.max_receive_message_length", max_answer_bytes))
        if credentials is None:
            self._channel = grpc.insecure_channel(address, options)
        else:
            self._channel = grpc.secure_channel(address, credentials, options)
        self._stub = service(self._channel)
        self._is_closed = False

    def unary(self, method: str, request: Message, *, timeout_seconds: float | None, metadata: Metadata) -> Any:
        """One response. Raises KakeyaError."""
        # A future, not a plain call, because it can be cancelled.
        call = getattr(self._stub, method).future(request, timeout=timeout_seconds, metadata=metadata)
        try:
            return call.result()
        except grpc.RpcError as error:
            raise self._translated(error) from error
        except BaseException:
            call.cancel()
            raise

    def stream(self, method: str, request: Message, *, timeout_seconds: float | None, metadata: Metadata) -> Stream:
        """Starts a call with a stream of responses."""
        call = getattr(self._stub, method)(request, timeout=timeout_seconds, metadata=metadata)
        return Stream(call, self._translated)

    def watch(self, request: admin_pb2.WatchRequest, *, metadata: Metadata) -> Stream:
        """Starts the one call of the operators' service that every client may make, without a deadline."""
        call = admin_pb2_grpc.AdminServiceStub(self._channel).Watch(request, metadata=metadata)
        return Stream(call, self._translated)

    def close(self) -> None:
        """Cancels what is running and disconnects."""
        self._is_closed = True
        self._channel.close()

    def _translated(self, error: grpc.RpcError) -> KakeyaError:
        was_ours = self._is_closed or (isinstance(error, grpc.Future) and error.cancelled())
        if was_ours and error.code() is grpc.StatusCode.CANCELLED:
            return Cancelled("the call was cancelled from this side")
        return translate(error, self._address)
