"""HOST:PORT, as flags and the contracts spell it."""

import re
from ipaddress import AddressValueError, IPv6Address, ip_address
from typing import Annotated, NamedTuple

from pydantic import AfterValidator

# Not so strict that it would refuse names which resolve; strict enough that each is a name and nothing else.
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_PORT = re.compile(r"[0-9]{1,5}")


class HostPort(NamedTuple):
    """`host` without brackets; `port` 0 means any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "HostPort":
        """Reads HOST:PORT or [IPV6]:PORT; HOST is a name or an IPv4 address, and no other target that gRPC knows.

        Raises:
            ValueError: it is something else, or the port is not between 0 and 65535.
        """
        host, _, port = text.rpartition(":")
        bare = host[1:-1]
        is_ipv6 = host == f"[{bare}]" and _is_ipv6(bare)
        if not (is_ipv6 or _NAME.fullmatch(host)) or not _PORT.fullmatch(port) or int(port) > 65535:
            raise ValueError(f"{text!r} is not HOST:PORT")
        return cls(bare if is_ipv6 else host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _is_ipv6(text: str) -> bool:
    address, percent, zone = text.partition("%")
    try:
        IPv6Address(address)
    except AddressValueError:
        return False
    return not percent or _NAME.fullmatch(zone) is not None


def _checked(text: str) -> str:
    return str(HostPort.parse(text))


Address = Annotated[str, AfterValidator(_checked)]
"""A setting that is one HOST:PORT."""


NOWHERE = "none"


def _checked_or_none(text: str) -> str:
    return text if text == NOWHERE else _checked(text)


AddressOrNone = Annotated[str, AfterValidator(_checked_or_none)]
"""A setting that is one HOST:PORT, or `NOWHERE`."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def parse_list(text: str) -> tuple[str, ...]:
    """Reads HOST:PORT,HOST:PORT,... into addresses; ValueError as `HostPort.parse`."""
    return tuple(_checked(part.strip()) for part in text.split(",") if part.strip())
