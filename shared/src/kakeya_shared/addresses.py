"""HOST:PORT, as flags and the contracts spell it."""

from ipaddress import ip_address
from typing import Annotated, NamedTuple

from pydantic import AfterValidator


class HostPort(NamedTuple):
    """`host` without brackets; `port` 0 means any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "HostPort":
        """Reads HOST:PORT or [IPV6]:PORT.

        Raises:
            ValueError: there is no host, or no port between 0 and 65535.
        """
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"{text!r} is not HOST:PORT")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _checked(text: str) -> str:
    return str(HostPort.parse(text))


Address = Annotated[str, AfterValidator(_checked)]
"""A setting that is one HOST:PORT."""


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
