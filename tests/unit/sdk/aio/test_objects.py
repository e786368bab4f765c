"""Objects that a client has a runtime keep."""

import pytest

from kakeya import AsyncClient, InvalidField, ObjectChanged, ObjectNotFound
from tests.unit.sdk.scripted_runtime import MAX_OBJECT_BYTES, ScriptedRuntime, fails


async def test_an_object_is_kept_until_it_is_deleted(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    await client.store_object("a", b"one")
    await client.store_object("b", b"two", ttl_seconds=60)
    assert [(each.id, each.ttl_seconds) for each in runtime.requests["StoreObject"]] == [("a", 0), ("b", 60)]
    assert [(await client.fetch_object(each)).data for each in ("a", "b")] == [b"one", b"two"]
    await client.delete_object("a")
    with pytest.raises(ObjectNotFound):
        await client.fetch_object("a")
    with pytest.raises(ObjectNotFound):
        await client.delete_object("a")


async def test_an_object_is_changed_as_it_was_fetched(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    await client.store_object("a", b"one")
    fetched = await client.fetch_object("a")
    assert fetched.version == 1
    assert await client.update_object("a", b" two", version=1, appends=True, ttl_seconds=60) == 2
    told = runtime.requests["UpdateObject"][-1]
    assert (told.id, told.version, told.appends, told.ttl_seconds) == ("a", 1, True, 60)
    with pytest.raises(ObjectChanged):
        await client.update_object("a", b"lost", version=fetched.version)
    fetched = await client.fetch_object("a")
    assert (fetched.data, fetched.version) == (b"one two", 2)
    with pytest.raises(InvalidField):
        await client.update_object("a", bytes(MAX_OBJECT_BYTES), version=2, appends=True)
    assert await client.update_object("a", b"three", version=2) == 3
    assert (await client.fetch_object("a")).data == b"three"
    with pytest.raises(ObjectNotFound):
        await client.update_object("b", b"", version=1)


async def test_calls_are_repeated(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    for method in ("StoreObject", "FetchObject", "UpdateObject"):
        runtime.before[method].append(fails("STORE_UNAVAILABLE", retry_after_seconds=0.01))
    await client.store_object("a", b"one")
    assert (await client.fetch_object("a")).data == b"one"
    assert await client.update_object("a", b"two", version=1) == 2
