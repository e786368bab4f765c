"""How large requests may be, each and together, and how slowly they may come."""

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kakeya_http_shim import error_shapes
from kakeya_http_shim.middleware import content_coding
from kakeya_http_shim.middleware.content_coding import Decoder
from kakeya_http_shim.middleware.freed_memory import FreedMemory
from kakeya_http_shim.problems import ApiError, unavailable

_LARGE_BYTES = 1 << 20
"""Such bodies leave memory behind that is worth giving back."""
_PIECE_BYTES = 64 << 10
"""A client that sends bodies of this size or smaller has the time of one piece: it cannot hold a place with drops."""


class BodyLimit:
    """Decodes and counts bodies as they arrive, keeps nothing of them, and counts them as held until their requests
    are answered.

    It answers by itself what it refuses, whatever the app makes of its failing `receive`: 413, 408, 415 where they are
    coded in a way that is not known here, or 503 where those of all requests together would be too much.

    Args:
        max_bytes: the largest body, as it comes and as it is decoded.
        max_held_bytes: of the bodies of all requests that are under way.
        piece_timeout_seconds: how long the client may take for each 64 KiB of its body, or for a shorter rest.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, max_held_bytes: int, piece_timeout_seconds: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._max_held_bytes = max_held_bytes
        self._piece_timeout_seconds = piece_timeout_seconds
        self._num_held_bytes = 0
        self._freed_memory = FreedMemory()

    @property
    def num_held_bytes(self) -> int:
        """Of the bodies of all requests that are under way: as long as announced, or as what has come of them."""
        return self._num_held_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            length = self._admit(scope)
            decoder = content_coding.decoder_of(scope)
        except ApiError as error:
            await error_shapes.response(error, scope)(scope, receive, send)
            return
        if length == 0:
            await self._app(scope, receive, send)
        else:
            await self._serve(
                scope, send, _Body(receive, self._hold, self._piece_timeout_seconds, length or 0, decoder)
            )

    def _admit(self, scope: Scope) -> int | None:
        """How long the body will be; None: it comes in chunks. Raises ApiError: too large, or of unclear length."""
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        is_chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
        if len(lengths) + is_chunked > 1 or not all(length.isdigit() for length in lengths):
            raise ApiError(400, "it must be clear where the request ends: one Content-Length, or chunks")
        if is_chunked:
            return None
        length = int(lengths[0]) if lengths else 0
        if length > self._max_bytes:
            raise self._too_large()
        self._check_held(length)
        return length

    async def _serve(self, scope: Scope, send: Send, body: "_Body") -> None:
        answer = _Answer(scope, body, send)
        self._num_held_bytes += body.num_held_bytes
        try:
            await self._app(scope, answer.receive, answer.send)
        except ApiError as error:
            if error is not answer.refusal:
                raise
        finally:
            self._num_held_bytes -= body.num_held_bytes
            if body.num_held_bytes >= _LARGE_BYTES:
                self._freed_memory.give_back_soon()

    def _hold(self, num_bytes: int, num_more_bytes: int) -> None:
        """Raises ApiError where a body of `num_bytes`, or `num_more_bytes` of it in addition to all, is too much."""
        if num_bytes > self._max_bytes:
            raise self._too_large()
        self._check_held(num_more_bytes)
        self._num_held_bytes += num_more_bytes

    def _check_held(self, num_bytes: int) -> None:
        if num_bytes > 0 and self._num_held_bytes + num_bytes > self._max_held_bytes:
            raise unavailable("the requests that are under way are too large for one more", "too_many_bytes")

    def _too_large(self) -> ApiError:
        return ApiError(
            413, f"the request is larger than the {self._max_bytes} bytes allowed", code="request_too_large"
        )


class _Body:
    """One body on its way.

    Args:
        hold: told its bytes so far, and how many more that is than it was told before.
        decoder: None: it comes as it is.

    Attributes:
        num_held_bytes: as it was announced, or what has come of it.
    """

    def __init__(
        self,
        receive: Receive,
        hold: Callable[[int, int], None],
        piece_seconds: float,
        num_held_bytes: int,
        decoder: Decoder | None,
    ) -> None:
        self.num_held_bytes = num_held_bytes
        self._receive = receive
        self._hold = hold
        self._piece_seconds = piece_seconds
        self._decoder = decoder
        self._num_bytes = 0
        self._num_decoded_bytes = 0
        self._num_pieces = 0
        self._left_seconds = piece_seconds
        self._is_whole = False

    async def next(self) -> Message:
        """What comes next, decoded. Raises ApiError: too slow, too large, or not coded as it should be."""
        if self._is_whole:  # only the client's leave can follow, whenever it likes
            return await self._receive()
        message = await self._in_time()
        self._is_whole = not message.get("more_body", False)
        self._num_bytes += len(message.get("body", b""))
        self._hold_up_to(self._num_bytes)
        if self._decoder is None or message["type"] != "http.request":
            return message
        return {**message, "body": self._decoded(self._decoder, message.get("body", b""))}

    def _decoded(self, decoder: Decoder, piece: bytes) -> bytes:
        parts = []
        for part in decoder.parts(piece, is_last=self._is_whole):
            self._num_decoded_bytes += len(part)
            self._hold_up_to(self._num_decoded_bytes)
            parts.append(part)
        return b"".join(parts)

    def _hold_up_to(self, num_bytes: int) -> None:
        num_more_bytes = max(0, num_bytes - self.num_held_bytes)
        self._hold(num_bytes, num_more_bytes)
        self.num_held_bytes += num_more_bytes

    async def _in_time(self) -> Message:
        """Only the time that is spent waiting counts: an app may take its own."""
        if self._num_bytes // _PIECE_BYTES > self._num_pieces:
            self._num_pieces = self._num_bytes // _PIECE_BYTES
            self._left_seconds = self._piece_seconds
        loop = asyncio.get_running_loop()
        began = loop.time()
        deadline = asyncio.timeout(self._left_seconds)
        try:
            async with deadline:
                message = await self._receive()
        except TimeoutError:
            if not deadline.expired():
                raise
            raise ApiError(408, "the request came too slowly", code="request_timeout") from None
        self._left_seconds -= loop.time() - began
        return message


class _Answer:
    """The exchange as the app sees it, until its request is refused.

    Attributes:
        refusal: what the client was told in place of the app's answer.
    """

    def __init__(self, scope: Scope, body: _Body, send: Send) -> None:
        self._scope = scope
        self._body = body
        self._send = send
        self._has_begun = False
        self.refusal: ApiError | None = None

    async def receive(self) -> Message:
        if self.refusal is not None:
            return {"type": "http.disconnect"}
        try:
            return await self._body.next()
        except ApiError as error:
            if not self._has_begun:
                self.refusal = error
                await error_shapes.response(error, self._scope)(self._scope, self.receive, self._send)
            raise

    async def send(self, message: Message) -> None:
        if self.refusal is None:  # else what the app says of its failed reading
            self._has_begun = True
            await self._send(message)
