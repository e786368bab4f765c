"""Stretches of load: which tenants have how many clients, for how long."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.overload.clients import WAYS, Experience, Metadata, OverloadClient
from tests.overload.line_watch import LineWatch


@dataclass(frozen=True)
class Stretch:
    """Attributes:
    share: of the run's time.
    num_clients: by tenant.
    vanish: whether some clients leave while they wait.
    """

    name: str
    share: float
    num_clients: dict[str, int]
    vanish: bool = False


@dataclass
class Outcome:
    """Of a stretch, by tenant.

    Attributes:
        byte_seconds: reserved bytes times how long they were, until the clients were told to stop.
    """

    stretch: Stretch
    seconds: float
    by_tenant: dict[str, Experience] = field(default_factory=dict)
    byte_seconds: dict[str, float] = field(default_factory=dict)

    def share(self, tenant: str) -> float:
        """Of all that was reserved."""
        return self.byte_seconds[tenant] / sum(self.byte_seconds.values())


@dataclass(frozen=True)
class Crowd:
    """What all clients of a run have in common.

    Attributes:
        addresses: of the routers; every other client uses the other one.
        metadata: by tenant.
        line: counts what anybody gets.
    """

    addresses: Sequence[str]
    metadata: dict[str, Metadata]
    line: LineWatch
    seed: int


async def run_stretch(stretch: Stretch, seconds: float, crowd: Crowd) -> Outcome:
    outcome = Outcome(stretch, seconds)
    stop, ways = asyncio.Event(), list(WAYS)
    async with asyncio.TaskGroup() as group:
        for tenant, num_clients in stretch.num_clients.items():
            experience = outcome.by_tenant[tenant] = Experience()
            for number in range(num_clients):
                client = OverloadClient(
                    crowd.addresses[number % len(crowd.addresses)],
                    crowd.metadata[tenant],
                    experience,
                    lambda: crowd.line.num_admitted,
                    random.Random(f"{crowd.seed}/{stretch.name}/{tenant}/{number}"),
                    first_way=ways[number % len(ways)] if stretch.vanish else None,
                )
                group.create_task(client.run(stop))
        crowd.line.byte_seconds.clear()
        await asyncio.sleep(seconds)
        outcome.byte_seconds = dict(crowd.line.byte_seconds)
        stop.set()
    return outcome
