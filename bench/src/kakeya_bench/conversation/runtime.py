"""The runtime that a bench plays on, and what operators see of its workers: their memory, how they run a model."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from kakeya import AsyncClient
from kakeya.cli.commands.admin_calls import AdminCalls
from kakeya.errors import KakeyaError
from kakeya_bench.conversation import clock
from kakeya_bench.conversation.settings import RuntimeSettings
from kakeya_stubs.admin.v1 import admin_pb2 as pb

FRESH_SECONDS = 1.0
"""A worker tells of itself once a second; asking more often would learn nothing."""


class Workers:
    """The routers' list of workers, asked for at most once a second.

    Attributes:
        why_not: why it is not known, e.g. since the key is no operator's; "" while it is.
    """

    def __init__(self, admin: AdminCalls) -> None:
        self.why_not = ""
        self._admin = admin
        self._known: Mapping[str, pb.WorkerStatus] = {}
        self._asked = -FRESH_SECONDS
        self._lock = asyncio.Lock()

    async def find(self, worker_id: str) -> pb.WorkerStatus | None:
        """A worker as of a second ago at most; None where it is not in the list, or there is none."""
        async with self._lock:
            if clock.now() - self._asked >= FRESH_SECONDS:
                await self._ask()
        return self._known.get(worker_id)

    async def _ask(self) -> None:
        self._asked = clock.now()
        try:
            answer = await asyncio.to_thread(self._admin.call, "ListWorkers", pb.ListWorkersRequest())
        except KakeyaError as error:
            self._known, self.why_not = {}, f"the router does not list its workers: {error}"
        else:
            self._known, self.why_not = {worker.worker_id: worker for worker in answer.workers}, ""


@asynccontextmanager
async def connected(settings: RuntimeSettings) -> AsyncIterator[tuple[AsyncClient, Workers]]:
    """A client, and what operators see of the workers. Raises BadConnectionFlag."""
    connection = settings.connection
    client = AsyncClient(connection.address, api_key=connection.api_key, credentials=connection.credentials)
    with AdminCalls(connection) as admin:
        async with client:
            yield client, Workers(admin)
