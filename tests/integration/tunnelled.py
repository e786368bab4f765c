"""Workers that nobody can dial, behind links that can fail."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.freezable_link import Link
from tests.integration.processes import Process, Runtime, wait_until
from tests.ports import free_port


@dataclass
class Behind:
    """Makes routers that are reached over links, and workers that keep tunnels to them. Use `behind`.

    Attributes:
        calls, tunnels: the links to the two ports of each router.
        tunnel_ports: where these lead.
    """

    made: Runtime
    calls: list[Link] = field(default_factory=list)
    tunnels: list[Link] = field(default_factory=list)
    tunnel_ports: list[str] = field(default_factory=list)

    async def start_router(self) -> None:
        """One whose both ports are reached over links, by workers and other routers alike."""
        address, port = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        calls, tunnels = await Link(address).open(), await Link(port).open()
        self.calls.append(calls)
        self.tunnels.append(tunnels)
        self.tunnel_ports.append(port)
        flags = (f"--advertise={calls.address}", f"--tunnel-bind={port}", f"--tunnel-advertise={tunnels.address}")
        await asyncio.to_thread(lambda: self.made.start_router(*flags, address=address))

    def start_worker(self, name: str) -> Process:
        """One with tunnels to all routers that there are, two at the most."""
        joins = ",".join(link.address for link in self.calls)
        return self.made.start_worker("--reverse", "--worker-id", name, joins=joins)

    async def wait_for_tunnels(self, number: int) -> None:
        """Until each worker has so many."""
        await asyncio.to_thread(
            wait_until,
            lambda: all(len(worker.tunnels) == number for worker in self.made.list_workers()),
            f"each worker has {number} tunnels",
        )

    def silence(self) -> None:
        """Nothing comes through, and nobody is told."""
        for link in (*self.calls, *self.tunnels):
            link.silence()

    def cut(self) -> None:
        """All connections break, and nothing comes through new ones."""
        self.silence()
        for link in (*self.calls, *self.tunnels):
            link.cut()

    def mend(self) -> None:
        for link in (*self.calls, *self.tunnels):
            link.flow()


@asynccontextmanager
async def behind(made: Runtime) -> AsyncIterator[Behind]:
    far = Behind(made)
    try:
        yield far
    finally:
        far.mend()
        # While the links are there: processes that stop say so to each other.
        await asyncio.to_thread(made.stop)
        await asyncio.gather(*(link.close() for link in (*far.calls, *far.tunnels)))
