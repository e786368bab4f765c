"""Who asks: the key of each request to the API, before its body is read."""

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from kakeya_http_shim import error_shapes
from kakeya_http_shim.problems import ApiError, bad_key

_MAX_KEY_BYTES = 4096
"""Far above any key, and below what gRPC's metadata hold."""


_GUARDED = frozenset({"/v1", "/tokenize", "/detokenize", "/apply-template", "/version", "/ui/events"})


class KeyCheck:
    """Lets a request to an API (below /v1/ or /api/, and others) through where `check` has nothing against its key.

    The key is then scope["state"]["api_key"]. It comes as `Authorization: Bearer KEY` or, from Anthropic's clients, as
    `x-api-key: KEY`; of both the first counts. A CORS preflight (OPTIONS) carries none and passes.

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
                await error_shapes.response(error, scope)(scope, receive, send)
                return
            scope.setdefault("state", {})["api_key"] = key
        await self._app(scope, receive, send)


def _is_api(path: str) -> bool:
    return path in _GUARDED or path.startswith(("/v1/", "/api/", "/ui/answers/"))


def _key(scope: Scope) -> str:
    """The key of the one header that has it, "" without one. Raises ApiError (401)."""
    authorization = _one(scope, b"authorization")
    if authorization is None:
        key = _one(scope, b"x-api-key") or b""
    else:
        scheme, _, key = authorization.partition(b" ")
        if scheme.lower() != b"bearer":
            raise bad_key()
    key = key.strip()
    if len(key) > _MAX_KEY_BYTES or not all(0x21 <= letter <= 0x7E for letter in key):
        raise bad_key()
    return str(key, "ascii")


def _one(scope: Scope, header: bytes) -> bytes | None:
    """Raises ApiError (401) where it is there twice."""
    values = [value for name, value in scope["headers"] if name == header]
    if len(values) > 1:
        raise bad_key()
    return values[0].strip() if values else None
