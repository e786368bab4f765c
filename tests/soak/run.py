"""What all runs have in common: a load on a runtime, and what is left of it."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.integration.leftovers import Pool, leftovers
from tests.integration.processes import Runtime
from tests.soak.process_watch import ProcessWatch
from tests.soak.progress import Progress
from tests.soak.report import Report, Tally
from tests.soak.shim_watch import unanswered

_POLL_SECONDS = 0.1
Client = Callable[[asyncio.Event], Awaitable[None]]


class Run:
    """Args:
    made: not used by anybody else.
    """

    def __init__(self, made: Runtime, progress: Progress) -> None:
        self.made = made
        self.progress = progress
        self.tally = Tally()
        self.watch = ProcessWatch(made)

    def begin(self, total: float, unit: str, done: Callable[[], float] | None = None) -> None:
        """Once the workers have joined; from now on there is progress to be seen, without `done` in what the tally has
        counted.
        """
        tally = self.tally
        (name,) = {worker.pool for worker in self.made.list_workers()}
        self.pool = Pool(name)
        self.progress.begin(total, unit, done or (lambda: tally.num_counted), lambda: tally.num_violations)

    def leave_nothing(self, seconds: float, also: Callable[[], list[str]] = list) -> tuple[list[str], float]:
        """Waits until nothing is there any more; what is left after so many seconds is a violation.

        A look that began before is not the last one: on a busy machine it can take longer than all that it looks at.

        Args:
            also: tells what else is left.

        Returns:
            What is left, and the seconds that passed.
        """
        began, slowest = time.monotonic(), 0.0
        looked = began
        while True:
            found = [*also(), *unanswered(self.made.shims), *leftovers(self.made, self.pool)]
            slowest = max(slowest, time.monotonic() - looked)
            if not found or looked - began > seconds:
                break
            time.sleep(_POLL_SECONDS)
            looked = time.monotonic()
        passed = time.monotonic() - began
        self.tally.violate(*(f"left over after {passed:.0f} s, looks of {slowest:.1f} s: {what}" for what in found))
        return found, passed

    def read_logs(self) -> None:
        """Ended processes, and what logs complain of, are violations."""
        for problem in self.watch.problems():
            self.tally.violate(problem, kind=problem[:80])

    def report(self, facts: Mapping[str, Any], late: Sequence[str] = ()) -> Report:
        return Report(facts, self.tally.violations, self.tally.num_violations, late)


@asynccontextmanager
async def until_told(clients: Sequence[Client]) -> AsyncIterator[None]:
    """Runs clients for as long as the context lasts; then they are told to stop, and do when they have come to it."""

    async def run(client: Client) -> None:
        await client(stop)

    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(run(client))
        yield
        stop.set()
