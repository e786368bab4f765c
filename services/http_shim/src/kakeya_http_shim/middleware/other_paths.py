"""Other ways to write the paths that are served: with a slash at the end, and without `/v1`."""

from starlette.types import ASGIApp, Receive, Scope, Send

_API = "/v1"
_WITHOUT_IT = ("/chat/completions", "/completions", "/messages", "/messages/count_tokens")
_WITH_PARTS = ("/models", "/responses", "/conversations")
"""They are served without it, too, and all that is below them."""


class OtherPaths:
    """Turns paths that mean the same into the one that is served, before all else looks at them.

    Clients are given a base URL with `/v1` or without it, with a slash at its end or without one, and put theirs behind
    it. A redirect would not do: it loses the body of a POST, or the key.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["path"] = _served(scope["path"])
        await self._app(scope, receive, send)


def _served(path: str) -> str:
    path = path.rstrip("/") or "/"
    if path in _WITHOUT_IT or any(path == each or path.startswith(f"{each}/") for each in _WITH_PARTS):
        return _API + path
    return path
