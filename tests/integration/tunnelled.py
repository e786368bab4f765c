"""Workers that nobody can dial, behind links that can fail."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tests.integration.faulty_link import FaultyLink, faulty_link
from tests.integration.processes import Process, Runtime, wait_until
from tests.ports import free_port


@dataclass
class Behind:
    """Makes routers that are reached over links, and workers that keep tunnels to them. Use `behind`.

    Attributes:
        links: of each router, to its two ports.
    """

    made: Runtime
    _stack: ExitStack
    links: list[FaultyLink] = field(default_factory=list)

    def start_router(self, *flags: str) -> Process:
        """One whose both ports are reached over links, by workers and other routers alike."""
        calls, tunnels = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        first, second = (self._stack.enter_context(faulty_link(target)) for target in (calls, tunnels))
        self.links += [first, second]
        return self.made.start_router(
            f"--advertise={first.address}",
            f"--tunnel-bind={tunnels}",
            f"--tunnel-advertise={second.address}",
            *flags,
            address=calls,
        )

    def start_worker(self, name: str, *flags: str, lanes: int = 8) -> Process:
        """One with tunnels to all routers that there are, two at the most."""
        joins = ",".join(link.address for link in self.links[::2])
        return self.made.start_worker("--reverse", "--worker-id", name, *flags, lanes=lanes, joins=joins)

    def wait_for_tunnels(self, number: int) -> None:
        """Until each worker has so many."""
        wait_until(
            lambda: all(len(worker.tunnels) == number for worker in self.made.list_workers()),
            f"each worker has {number} tunnels",
        )

    def cut(self) -> None:
        for link in self.links:
            link.cut()

    def silence(self) -> None:
        for link in self.links:
            link.silence()

    def mend(self) -> None:
        for link in self.links:
            link.mend()


@contextmanager
def behind(made: Runtime) -> Iterator[Behind]:
    with ExitStack() as stack:
        yield Behind(made, stack)
