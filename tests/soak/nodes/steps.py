"""What becomes of nodes: they die and come back, under the same and another id, or elsewhere, or as one too many."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import grpc

from kakeya_stubs.worker.v1.verifier_pb2 import GetSlabRequest
from kakeya_stubs.worker.v1.verifier_pb2_grpc import VerifierServiceStub
from tests.integration.processes import Process, Runtime, wait_until
from tests.soak.nodes.membership import Membership, Node
from tests.soak.nodes.stale_worker import StaleCalls, held_by

LEASE_SECONDS = 5.0
TUNNELS_A_WORKER = 2


@dataclass
class Steps:
    """Args:
    draw: decides on what becomes of whom.
    lanes: of a worker.
    router_flags: of routers that end tunnels, by address; others take their place.

    Attributes:
    pool: that the workers have joined.
    counts: how often each kind was taken.
    stale: what was asked of workers that were given up, and what they answered.
    placed: lanes that such a worker held.
    """

    made: Runtime
    membership: Membership
    draw: random.Random
    lanes: int
    router_flags: dict[str, tuple[str, ...]]
    pool: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    stale: StaleCalls = field(default_factory=StaleCalls)
    placed: list[str] = field(default_factory=list)
    _num_ids: int = 0

    def start(self, *, is_reverse: bool) -> None:
        """A further node."""
        worker_id = self._new_id()
        node = Node(worker_id, self._start(worker_id, is_reverse=is_reverse))
        self.membership.nodes.append(node)

    async def take(self) -> str:
        """One, drawn at random, of a node that is drawn too; returns its name."""
        node = self.draw.choice(self.membership.nodes)
        kinds: dict[str, Callable[[Node], Awaitable[None]]] = {
            "dies, same id": self._same_id,
            "dies, another id": self._another_id,
            "stopped beyond its lease": self._pause,
            "stopped, replaced, goes on": self._overtake,
            "its routers die in turn": self._kill_routers,
        }
        if node.process.address:
            kinds["dies, same id, another address"] = self._another_address
        name = self.draw.choice(list(kinds))
        self.counts[name] += 1
        await kinds[name](node)
        return name

    async def _same_id(self, node: Node) -> None:
        await self._replace(node, node.process.address)

    async def _another_address(self, node: Node) -> None:
        await self._replace(node, "")

    async def _another_id(self, node: Node) -> None:
        """At the same address, where it has one: both are listed until the lease of the first one lapses."""
        await self._replace(node, node.process.address, self._new_id())

    async def _replace(self, node: Node, address: str, worker_id: str = "") -> None:
        old = self.membership.incarnation(node)
        is_reverse = not node.process.address
        self.made.workers.remove(node.process)
        await asyncio.to_thread(node.process.kill)
        died_at = time.time()
        node.worker_id = worker_id or node.worker_id
        node.process = self._start(node.worker_id, is_reverse=is_reverse, address=address)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.membership.loses(old, died_at))
            group.create_task(self.membership.has(node, died_at, old))
        await self._tunnels_stand()

    async def _pause(self, node: Node) -> None:
        """It comes back by itself, with none of its lanes."""
        process, stopped_at = node.process, time.time()
        os.kill(process.process.pid, signal.SIGSTOP)
        try:
            await self.membership.loses(self.membership.incarnation(node), stopped_at, for_good=False)
            await asyncio.sleep(self.draw.uniform(0, LEASE_SECONDS))
        finally:
            os.kill(process.process.pid, signal.SIGCONT)
        await self.membership.has(node, time.time())
        await self._tunnels_stand()

    async def _overtake(self, node: Node) -> None:
        """Another process takes its id, and then it goes on: it is the stale one."""
        stale, old = node.process, self.membership.incarnation(node)
        held = await held_by(self.made, self.pool, old)
        os.kill(stale.process.pid, signal.SIGSTOP)
        stopped_at = time.time()
        self.made.workers.remove(stale)
        try:
            node.process = self._start(node.worker_id, is_reverse=not stale.address)
            async with asyncio.TaskGroup() as group:
                group.create_task(self.membership.loses(old, stopped_at))
                group.create_task(self.membership.has(node, stopped_at, old))
            await asyncio.sleep(stopped_at + LEASE_SECONDS - time.time())
            os.kill(stale.process.pid, signal.SIGCONT)
            async with self.stale.on(stale, held):
                went_on_at = time.time()
                await asyncio.sleep(self.draw.uniform(0.5, 1.5) * LEASE_SECONDS)
                await self.membership.has(node, went_on_at)
                await asyncio.to_thread(self._look_at_lanes, stale)
        finally:
            await asyncio.to_thread(stale.kill)
        await self._tunnels_stand()

    def _look_at_lanes(self, stale: Process) -> None:
        with grpc.insecure_channel(stale.served_at) as channel:
            slab = VerifierServiceStub(channel).GetSlab(GetSlabRequest(), timeout=60)
        if slab.num_lanes_in_use:
            self.placed.append(f"{stale.log.stem}, which is stale, holds {slab.num_lanes_in_use} lanes")

    async def _kill_routers(self, node: Node) -> None:
        """One after the other, those that end tunnels; others than the clients'."""
        for at in range(1, len(self.made.routers)):
            router = self.made.routers.pop(at)
            await asyncio.to_thread(router.kill)
            await asyncio.sleep(self.draw.uniform(0.2, LEASE_SECONDS))
            flags = self.router_flags[router.address]
            restarted = await asyncio.to_thread(self.made.start_router, *flags, address=router.address)
            self.made.routers.remove(restarted)
            self.made.routers.insert(at, restarted)
            await self._tunnels_stand()
        await self.membership.has(node, time.time())

    async def _tunnels_stand(self) -> None:
        """Each worker that nobody can dial has all its tunnels."""

        def stand() -> bool:
            return all(len(each.tunnels) == TUNNELS_A_WORKER for each in self.made.list_workers() if not each.address)

        await asyncio.to_thread(wait_until, stand, "all tunnels stand")

    def _start(self, worker_id: str, *, is_reverse: bool, address: str = "") -> Process:
        how = ("--worker-id", worker_id, *(("--reverse",) if is_reverse else ()))
        return self.made.start_worker(*how, lanes=self.lanes, address=address)

    def _new_id(self) -> str:
        self._num_ids += 1
        return f"node-{self._num_ids}"
