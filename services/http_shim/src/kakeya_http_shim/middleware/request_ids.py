"""A name for each request, which its client and the logs share."""

import secrets

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from kakeya_http_shim.error_shapes import is_of_messages

HEADER = "x-request-id"
"""As OpenAI's clients know it, whatever RFC 6648 says."""
_OF_MESSAGES = "request-id"
"""The same, as Anthropic's clients know it."""
_LONGEST = 128


class RequestIds:
    """Names each request as its client does, or else by itself.

    The name is scope["state"]["request_id"], in the log lines of the request, and in its answer.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _given(scope) or new_id()
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers[HEADER] = request_id
                if is_of_messages(scope.get("path", "")):
                    headers[_OF_MESSAGES] = request_id
            await send(message)

        with bound_contextvars(request_id=request_id):
            await self._app(scope, receive, send_with_id)


def new_id() -> str:
    """One that nobody has."""
    return f"req_{secrets.token_hex(16)}"


def _given(scope: Scope) -> str:
    """The client's, "" where it has none that can be told on."""
    values = [value for name, value in scope["headers"] if name == HEADER.encode()]
    if (
        len(values) != 1
        or not 1 <= len(values[0]) <= _LONGEST
        or not all(0x21 <= letter <= 0x7E for letter in values[0])
    ):
        return ""
    return str(values[0], "ascii")
