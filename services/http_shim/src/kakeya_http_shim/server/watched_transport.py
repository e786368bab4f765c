"""A transport that neither waits for ever for its client nor cuts it off in mid-answer."""

import asyncio
from typing import Any

_LINGER_SECONDS = 2.0
"""How long a client that is still sending may take to read why it need not."""


class WatchedTransport(asyncio.Transport):
    """What a connection needs of its transport, with an end to all waiting.

    asyncio's own `close` waits without limit for a client that reads nothing; and where the client has sent more
    than was read, the system answers with a reset, which can destroy the answer before the client has read it.

    Args:
        stall_seconds: a client that takes nothing for so long, when there is more to send than the system
            buffers, is cut off.

    Attributes:
        client_sends: whether more is to come from the client, to be read and dropped when this is closed.
    """

    def __init__(self, inner: asyncio.Transport, loop: asyncio.AbstractEventLoop, stall_seconds: float) -> None:
        super().__init__()
        self._inner = inner
        self._loop = loop
        self._stall_seconds = stall_seconds
        self._is_closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._held: list[bytes | bytearray | memoryview] | None = None
        self.client_sends = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._is_closing or self._inner.is_closing()

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._inner.resume_reading()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._held is None:
            self._inner.write(data)
        else:
            self._held.append(data)

    def hold(self) -> None:
        """What is written from now on is sent in one piece when it is released: each call of the system costs time."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        """Sends what was held."""
        held, self._held = self._held, None
        if held:
            self._inner.write(b"".join(held))

    def abort(self) -> None:
        """Cuts the connection; what was not sent is lost."""
        self._is_closing = True
        self._inner.abort()

    def close(self) -> None:
        """Ends the connection when all is sent, and the client has read it where it was sending itself."""
        if self.is_closing():
            return
        self.release()
        self._is_closing = True
        if self.client_sends and self._inner.can_write_eof():
            self._inner.write_eof()
            self._inner.resume_reading()
        else:
            self._inner.close()  # TLS by itself goes on reading until the client says goodbye
        self.watch()

    def watch(self) -> None:
        """From now on the client must take something every `stall_seconds`."""
        self.unwatch()
        unsent_bytes = self._inner.get_write_buffer_size()
        seconds = self._stall_seconds if unsent_bytes else _LINGER_SECONDS
        self._timer = self._loop.call_later(seconds, self._check, unsent_bytes)

    def unwatch(self) -> None:
        """All is sent, or the connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self, unsent_bytes: int) -> None:
        if self._inner.get_write_buffer_size() < unsent_bytes:
            self.watch()
        else:
            self.abort()
