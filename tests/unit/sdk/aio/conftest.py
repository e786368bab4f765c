from collections.abc import AsyncIterator

import pytest

from kakeya import AsyncClient, AsyncSession
from tests.unit.sdk.cuttable_link import CuttableLink
from tests.unit.sdk.scripted_runtime import ScriptedRuntime


@pytest.fixture
async def client(runtime: ScriptedRuntime) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(runtime.address) as client:
        yield client


@pytest.fixture
async def session(client: AsyncClient) -> AsyncSession:
    return await client.create_session()


@pytest.fixture
async def cuttable_session(link: CuttableLink) -> AsyncIterator[AsyncSession]:
    """A session whose connection can be cut."""
    async with AsyncClient(link.address) as client:
        yield await client.create_session()
