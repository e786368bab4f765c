"""What clients send, read into the model of its route."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from kakeya_http_shim.requests import json_text

_INLINE_BYTES = 2048
"""A body of so many bytes is read and tokenized within a few milliseconds; larger ones leave the event loop free."""

Body = TypeVar("Body")


async def read(make: Callable[[bytes], Body], scope: Scope, receive: Receive) -> tuple[Body, bool] | None:
    """What is made of a request's body, and whether that is a short one; None where its client left.

    Raises:
        ApiError: as `make` does where it is none of its kind.
    """
    json_text.check_media_type(scope)
    try:
        data = await _bytes(receive)
    except ClientDisconnect:
        return None
    is_short = len(data) <= _INLINE_BYTES
    return await made(partial(make, data), is_short=is_short), is_short


async def made(make: Callable[[], Body], *, is_short: bool) -> Body:
    """What is made of little is made here, since a thread would take longer than that. Raises as `make` does."""
    return make() if is_short else await asyncio.to_thread(make)


async def _bytes(receive: Receive) -> bytes:
    pieces = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)
