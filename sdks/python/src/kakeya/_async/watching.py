"""Watching a runtime: what runs on it, from now on."""

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from kakeya._async.calls import AsyncCalls
from kakeya._transport._aio_transport import sleep
from kakeya._transport._retry import Deadline, Retry
from kakeya.errors import Cancelled, KakeyaError
from kakeya.results import WatchEvent
from kakeya_stubs.admin.v1 import admin_pb2

T = TypeVar("T")


class AsyncWatching:
    """Base of a client: the stream of what runs."""

    _calls: AsyncCalls

    def watch(self, *, interval_seconds: float | None = None) -> AsyncIterator[WatchEvent]:
        """First all that the key may see, then what changes, until you stop; `WatchedRuntime` adds it up.

        A key with the scope `admin` sees all sessions and workers, and so does everybody where no keys are asked for.
        Any other key sees its tenant's sessions and the sums over all. Texts and tokens are shown to nobody. Who is
        slow misses what was between. Where the connection breaks it begins anew, with an event that says so (`begins`).

        Args:
            interval_seconds: least time between two events, 0.1 to 60; None: the runtime's, half a second.

        Raises:
            KakeyaError: InvalidField, Unauthenticated, also later on, when the key has been revoked; RpcFailed with
                status UNIMPLEMENTED from a runtime of an older version; Unavailable after `max_attempts` in a row.
        """
        return self._watched(interval_seconds, WatchEvent.from_wire)

    def watch_responses(self, *, interval_seconds: float | None = None) -> AsyncIterator[admin_pb2.WatchResponse]:
        """As `watch`, in the messages of the contract."""
        return self._watched(interval_seconds, lambda response: response)

    async def _watched(
        self, interval_seconds: float | None, read: Callable[[admin_pb2.WatchResponse], T]
    ) -> AsyncIterator[T]:
        request = admin_pb2.WatchRequest(interval_seconds=interval_seconds or 0.0)
        retry = None
        while True:
            call = self._calls.watch(request)
            try:
                while (response := await call.read()) is not None:
                    retry = None
                    yield read(response)
                return
            except KakeyaError as error:
                retry = retry or Retry(Deadline(None), max_attempts=self._calls.max_attempts)
                delay_seconds = retry.delay_seconds(error)
                if delay_seconds is None:
                    raise
            finally:
                call.cancel(Cancelled("nobody watches any more"))
            await sleep(delay_seconds)
