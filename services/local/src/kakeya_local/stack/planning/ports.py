"""TCP ports of this machine."""

import socket
import sys
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from kakeya_local.errors import StackError
from kakeya_shared.settings.addresses import HostPort

_ANY_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # recognized here, not bound
# A socket that is bound and never listens leaves its port to who asks for it by number, with SO_REUSEADDR as servers
# do. Other systems give the second socket an error.
_CAN_HOLD = sys.platform == "linux"


class Ports:
    """Those of one stack; use as a context manager, around its processes.

    A port is chosen before the process that listens there is started, and is free again while that is restarted. Until
    this is left the system gives it to nobody who asks for any port, or who connects from one: on Linux; elsewhere a
    port is only looked at.
    """

    def __init__(self) -> None:
        self._held = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def claim(self, address: HostPort) -> HostPort:
        """Checks that an address can be listened on; port 0 becomes a free one.

        Raises:
            StackError: it is taken, or not an address of this machine.
        """
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(
                address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            with ExitStack() as taken:
                holder = taken.enter_context(socket.socket(family, kind, protocol))
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                holder.bind(place)
                found = HostPort(address.host, holder.getsockname()[1])
                if _CAN_HOLD:
                    self._held.push(taken.pop_all())
                return found
        except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host
            reason = getattr(error, "strerror", None) or str(error)
            raise StackError(f"cannot listen on {address}: {reason.lower()}") from error


def reachable(address: HostPort) -> HostPort:
    """Where a client on this machine finds what listens on `address`."""
    return HostPort(_ANY_HOSTS.get(address.host, address.host), address.port)
