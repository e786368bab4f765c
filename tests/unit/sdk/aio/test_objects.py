"""Objects that a client has a runtime keep."""

import pytest

from kakeya import AsyncClient, ObjectNotFound
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails


async def test_an_object_is_kept_until_it_is_deleted(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    await client.store_object("a", b"one")
    await client.store_object("b", b"two", ttl_seconds=60)
    assert [(each.id, each.ttl_seconds) for each in runtime.requests["StoreObject"]] == [("a", 0), ("b", 60)]
    assert (await client.fetch_object("a"), await client.fetch_object("b")) == (b"one", b"two")
    await client.delete_object("a")
    with pytest.raises(ObjectNotFound):
        await client.fetch_object("a")
    with pytest.raises(ObjectNotFound):
        await client.delete_object("a")


async def test_calls_are_repeated(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    for method in ("StoreObject", "FetchObject"):
        runtime.before[method].append(fails("STORE_UNAVAILABLE", retry_after_seconds=0.01))
    await client.store_object("a", b"one")
    assert await client.fetch_object("a") == b"one"
