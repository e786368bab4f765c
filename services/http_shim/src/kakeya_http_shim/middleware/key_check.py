"""Who asks: the key of each request to the API, before its body is read."""

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from kakeya_http_shim.problems import ApiError, bad_key

_MAX_KEY_BYTES = 4096
"""Far above any key, and below what gRPC's metadata hold."""


_GUARDED = frozenset({"/v1", "/tokenize", "/detokenize", "/apply-template", "/version"})


class KeyCheck:
    """Lets a request to the API (/v1/ and what belongs to it) through where `check` has nothing against its key.

    The key is then scope["state"]["api_key"]. A CORS preflight (OPTIONS) carries none and passes.

    Args:
        check: given the key, "" where there is none; raises ApiError to refuse it.
    """

    def __init__(self, app: ASGIApp, check: Callable[[str], Awaitable[None]]) -> None:
        self._app = app
        self._check = check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _is_api(scope["path"]) and scope["method"] != "OPTIONS":
            try:
                key = _key(scope)
                await self._check(key)
            except ApiError as error:
                await error.response()(scope, receive, send)
                return
            scope.setdefault("state", {})["api_key"] = key
        await self._app(scope, receive, send)


def _is_api(path: str) -> bool:
    return path in _GUARDED or path.startswith("/v1/")


def _key(scope: Scope) -> str:
    """The key of the one Authorization header, "" without one. Raises ApiError (401)."""
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    if not values:
        return ""
    scheme, _, key = values[0].strip().partition(b" ")
    key = key.strip()
    is_sendable = len(key) <= _MAX_KEY_BYTES and all(0x21 <= letter <= 0x7E for letter in key)
    if len(values) > 1 or scheme.lower() != b"bearer" or not is_sendable:
        raise bad_key()
    return str(key, "ascii")
