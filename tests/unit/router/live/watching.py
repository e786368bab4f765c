"""A viewer of a router: what its stream of Watch comes to."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from kakeya_stubs.admin.v1 import admin_pb2 as pb
from tests.unit.router.stack import LONG_SECONDS, Client, answer


class Viewer:
    """Reads one stream.

    Attributes:
        num_events: that have come so far.
        beginnings: how often everything came anew.
        texts: all that came, as text.
    """

    def __init__(self, client: Client, interval_seconds: float = 0.1) -> None:
        self.call = client.admin.Watch(pb.WatchRequest(interval_seconds=interval_seconds))
        self.fleet = pb.FleetSums()
        self.sessions: dict[str, pb.Session] = {}
        self.workers: dict[str, pb.WorkerStatus] = {}
        self.queues: dict[str, pb.PoolQueue] = {}
        self.num_events = self.beginnings = 0
        self.texts = ""
        self.latest = pb.WatchResponse()

    async def next(self) -> None:
        """Takes in one response; raises the tree's error."""
        response = await answer(self.call.read())
        assert isinstance(response, pb.WatchResponse), "the stream ended"
        self.num_events += 1
        self.texts += str(response)
        self.latest = response
        if response.begins:
            self.beginnings += 1
            self.fleet = pb.FleetSums()
            self.sessions, self.workers, self.queues = {}, {}, {}
        if response.HasField("fleet"):
            self.fleet = response.fleet
        self.sessions |= {session.session_id: session for session in response.sessions}
        self.workers |= {worker.worker_id: worker for worker in response.workers}
        self.queues |= {queue.pool: queue for queue in response.queues}
        for session_id in response.gone_session_ids:
            del self.sessions[session_id]
        for worker_id, worker in [*self.workers.items()]:
            if worker.incarnation in response.gone_incarnations:
                del self.workers[worker_id]
        for pool in response.gone_pools:
            del self.queues[pool]

    async def until(self, holds: Callable[["Viewer"], Any]) -> Any:
        """Reads on until it holds; returns what it was."""
        async with asyncio.timeout(LONG_SECONDS):
            while not (held := holds(self)):
                await self.next()
        return held


@asynccontextmanager
async def viewing(client: Client, interval_seconds: float = 0.1) -> AsyncIterator[Viewer]:
    """A viewer that has seen everything once."""
    viewer = Viewer(client, interval_seconds)
    try:
        await viewer.next()
        await viewer.until(lambda viewer: not viewer.latest.continues)
        yield viewer
    finally:
        viewer.call.cancel()
