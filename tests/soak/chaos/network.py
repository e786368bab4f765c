"""The links through which clients reach routers, and routers workers."""

import asyncio

import grpc

from tests.freezable_link import Link
from tests.integration.processes import Process, Runtime, wait_until
from tests.ports import free_port


class Network:
    """Starts workers behind links, and puts links before routers, which keep their addresses when they are replaced."""

    def __init__(self, made: Runtime, *, lanes: int) -> None:
        self._made = made
        self._lanes = lanes
        self._of_workers: dict[str, Link] = {}  # by address
        self._of_routers: dict[str, Link] = {}

    @property
    def links(self) -> list[Link]:
        return [*self._of_workers.values(), *self._of_routers.values()]

    @property
    def target(self) -> str:
        """Where clients find the routers."""
        return "ipv4:" + ",".join(link.address for link in self._of_routers.values())

    async def link_routers(self) -> None:
        for router in self._made.routers:
            self._of_routers[router.address] = await Link(router.address).open()

    def worker(self, worker_id: str) -> Process | None:
        """That runs under an id, which ends with the port of its link."""
        for worker in self._made.workers:
            if worker_id.endswith("-" + self._of_workers[worker.address].address.rsplit(":", 1)[1]):
                return worker
        return None

    async def start_worker(self) -> Process:
        address = f"127.0.0.1:{free_port()}"
        link = self._of_workers[address] = await Link(address).open()
        return self._made.start_worker("--advertise", link.address, lanes=self._lanes, address=address)

    async def joined(self, worker: Process) -> None:
        """Waits until the routers know it."""
        address = self._of_workers[worker.address].address

        def is_listed() -> bool:
            try:
                return address in {each.address for each in self._made.list_workers()}
            except grpc.RpcError:
                return False  # the routers have faults of their own

        await asyncio.to_thread(wait_until, is_listed, f"a worker joins; see {worker.log}", seconds=180)

    async def forget(self, worker: Process) -> None:
        """One that has ended."""
        await self._of_workers.pop(worker.address).close()

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self.links))
