"""TCP ports of this machine."""

import socket

from kakeya_local.errors import StackError
from kakeya_shared.settings.addresses import HostPort

_ANY_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # recognized here, not bound


def claim(address: HostPort) -> HostPort:
    """Checks that an address can be listened on; port 0 becomes a free one.

    Raises:
        StackError: it is taken, or not an address of this machine.
    """
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
            return HostPort(address.host, listener.getsockname()[1])
    except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host
        reason = getattr(error, "strerror", None) or str(error)
        raise StackError(f"cannot listen on {address}: {reason.lower()}") from error


def reachable(address: HostPort) -> HostPort:
    """Where a client on this machine finds what listens on `address`."""
    return HostPort(_ANY_HOSTS.get(address.host, address.host), address.port)
