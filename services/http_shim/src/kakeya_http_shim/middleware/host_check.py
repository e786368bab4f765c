"""Under which names this server may be called.

A web page can point a name of its own at a loopback address and then talk to whatever listens there as to its own
server (DNS rebinding). Its requests give that name.
"""

import re

from starlette.types import ASGIApp, Receive, Scope, Send

from kakeya_http_shim import error_shapes
from kakeya_http_shim.problems import ApiError

_OF_PROBES = frozenset({"/healthz", "/readyz", "/health", "/ping"})
"""Asked by address, and no secret."""
_HOST = re.compile(rb"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:@/]+))(?::[0-9]*)?")


class HostCheck:
    """Refuses requests for another host.

    Args:
        hosts: names and addresses in lower case, without ports and brackets; empty: any.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._hosts and scope["path"] not in _OF_PROBES and not self._is_for_us(scope):
            message = "this server is not called that; --allowed-hosts names what it may be called"
            error = ApiError(400, message, code="unknown_host")
            await error_shapes.response(error, scope)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_for_us(self, scope: Scope) -> bool:
        return _host(scope) in self._hosts


def _host(scope: Scope) -> str | None:
    """The one host of the request in lower case, without port and brackets; None where there is no such."""
    values = [value for name, value in scope["headers"] if name == b"host"]
    match = _HOST.fullmatch(values[0]) if len(values) == 1 else None
    return None if match is None else (match[1] or match[2]).decode("latin-1").lower()
