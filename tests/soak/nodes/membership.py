"""Who is listed as a worker, looked at again and again, and how long that takes to become true."""

import asyncio
import json
import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from datetime import datetime

import grpc

from tests.integration.processes import START_SECONDS, Process, Runtime

_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Member:
    """`address`: empty where it is reached through tunnels."""

    worker_id: str
    incarnation: str
    address: str


@dataclass
class Node:
    """A place for a worker, which is one process after another."""

    worker_id: str
    process: Process


@dataclass
class Membership:
    """Attributes:
    gone: incarnations that were given up, and must not come back.
    back: those that did.
    seconds: in which it became true, of each change.
    """

    made: Runtime
    nodes: list[Node] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    back: set[str] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)
    _listed: Set[Member] = frozenset()
    _looked_at: float = 0.0  # seconds since the epoch
    _looked: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                listed = await asyncio.to_thread(self._look)
            except grpc.RpcError:  # on a machine that is busy enough; until the next look nothing counts as true
                continue
            self.back |= self.gone & {each.incarnation for each in listed}
            async with self._looked:
                self._listed, self._looked_at = listed, time.time()
                self._looked.notify_all()

    def _look(self) -> Set[Member]:
        listed = self.made.list_workers()
        return {Member(each.worker_id, each.incarnation, each.address) for each in listed}

    async def know(self) -> None:
        """Those that have joined are the nodes."""
        for node in self.nodes:
            await self.has(node, time.time())
        self.seconds.clear()

    async def loses(self, incarnation: str, since: float, *, for_good: bool = True) -> None:
        """Waits until it is not listed any more; for good, it never must be again."""
        await self._until(lambda: incarnation not in {each.incarnation for each in self._listed}, "is lost")
        if for_good:
            self.gone.add(incarnation)
        self.seconds.append(self._looked_at - since)

    async def has(self, node: Node, since: float, instead_of: str = "") -> None:
        """Waits until exactly those are listed that are there, counted from `since` or from when it could join.

        Args:
            instead_of: the incarnation whose place it takes.
        """

        def is_true() -> bool:
            there = {(each.worker_id, each.process.address) for each in self.nodes}
            given_up = self.gone | {instead_of}
            listed = {(each.worker_id, each.address) for each in self._listed}
            return listed == there and not any(each.incarnation in given_up for each in self._listed)

        await self._until(is_true, f"{node.worker_id} is there; see {node.process.log}")
        self.seconds.append(self._looked_at - max(since, _loaded_at(node.process)))

    def incarnation(self, node: Node) -> str:
        """By which it is listed. A machine that is busy enough has a worker lose its lease, and join anew."""
        return next((each.incarnation for each in self._listed if each.worker_id == node.worker_id), "")

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        """Holds for a look that begins after now."""
        asked_at, deadline = self._looked_at, time.monotonic() + START_SECONDS
        async with self._looked:
            while not (self._looked_at > asked_at and holds()):
                assert time.monotonic() < deadline, f"not within {START_SECONDS:g} s: {what}; listed: {self._listed}"
                await self._looked.wait()


def _loaded_at(process: Process) -> float:
    """When it had its model, as its log says: in seconds since the epoch."""
    events = [json.loads(line) for line in process.log.read_text().splitlines() if '"loaded"' in line]
    return datetime.fromisoformat(events[-1]["timestamp"]).timestamp()
