"""Notices that this machine has slept, or has other addresses than before."""

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

_LOOK_SECONDS = 1.0
# The clock of the day goes on while a machine sleeps, the monotonic one does not. What is shorter is a correction.
_SLEPT_SECONDS = 3.0
# For documentation (RFC 5737, RFC 3849): connecting a datagram socket sends nothing, it only chooses an address.
_ANYWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def own_addresses() -> tuple[str, ...]:
    """From which this machine speaks to the rest of the world; empty texts: it does not."""
    return tuple(_own_address(family, host) for family, host in _ANYWHERE)


def _own_address(family: socket.AddressFamily, host: str) -> str:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return ""


@dataclass
class Network:
    """Looks once a second.

    Args:
        addresses: of this machine now.
        day_clock, clock: in seconds; the second one stands still while the machine sleeps.
    """

    addresses: Callable[[], tuple[str, ...]] = own_addresses
    day_clock: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    look_seconds: float = _LOOK_SECONDS

    async def changed(self) -> str:
        """Waits for a change, and says what it was."""
        addresses, asleep = self.addresses(), self._asleep()
        while True:
            await asyncio.sleep(self.look_seconds)
            if self._asleep() - asleep > _SLEPT_SECONDS:
                return "this machine has slept"
            if self.addresses() != addresses:
                return "this machine's addresses have changed"
            asleep = self._asleep()

    def _asleep(self) -> float:
        return self.day_clock() - self.clock()
