"""The runtime that a bench plays on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kakeya import AsyncClient
from kakeya.cli.commands.admin_calls import AdminCalls
from kakeya_bench.conversation.settings import RuntimeSettings
from kakeya_bench.conversation.workers import Workers


@asynccontextmanager
async def connected(settings: RuntimeSettings) -> AsyncIterator[tuple[AsyncClient, Workers]]:
    """A client, and what operators see of the workers. Raises BadConnectionFlag."""
    connection = settings.connection
    client = AsyncClient(connection.address, api_key=connection.api_key, credentials=connection.credentials)
    with AdminCalls(connection) as admin:
        async with client:
            yield client, Workers(admin)
