"""Objects of a tenant: what it keeps is its own, counted, changed by who knows its version, and gone in time."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kakeya_shared.errors.tree import InvalidField, ObjectChanged, ObjectNotFound, QuotaExceeded
from kakeya_stubs.admin.v1 import admin_pb2
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.keyed import Keyed
from tests.unit.router.stack import Client, Stack, answer, eventually

DATA = bytes(range(256))
DAY_MS = 86_400_000


async def store(client: Client, object_id: str, data: bytes = DATA, **fields: Any) -> None:
    await answer(client.runtime.StoreObject(api.StoreObjectRequest(id=object_id, data=data, **fields)))


async def fetch(client: Client, object_id: str) -> bytes:
    return (await answer(client.runtime.FetchObject(api.FetchObjectRequest(id=object_id)))).data


async def version_of(client: Client, object_id: str) -> int:
    return (await answer(client.runtime.FetchObject(api.FetchObjectRequest(id=object_id)))).version


async def update(client: Client, object_id: str, data: bytes = DATA, **fields: Any) -> int:
    request = api.UpdateObjectRequest(id=object_id, data=data, **{"version": 1, **fields})
    return (await answer(client.runtime.UpdateObject(request))).version


async def delete(client: Client, object_id: str) -> None:
    await answer(client.runtime.DeleteObject(api.DeleteObjectRequest(id=object_id)))


async def names(stack: Stack) -> Sequence[str]:
    return sorted(await stack.keys("kakeya:{objects:*"))


async def test_what_is_kept_is_there_until_it_is_deleted(keyed: Keyed) -> None:
    client = await keyed.tenant("acme")
    await store(client, "resp_1")
    assert await fetch(client, "resp_1") == DATA
    await store(client, "resp_1", b"")
    assert await fetch(client, "resp_1") == b""
    prefix = "kakeya:{objects:acme}:"
    assert await names(keyed.stack) == [f"{prefix}expiries", f"{prefix}object:resp_1", f"{prefix}sizes"]
    await delete(client, "resp_1")
    for call in (fetch, delete):
        with pytest.raises(ObjectNotFound):
            await call(client, "resp_1")
    assert await names(keyed.stack) == [f"{prefix}sizes"]
    assert await keyed.stack.redis.hgetall(f"{prefix}sizes") == {"total:": "0"}
    assert 0 < await keyed.stack.redis.pttl(f"{prefix}sizes") <= DAY_MS


async def test_another_tenants_object_does_not_exist(keyed: Keyed) -> None:
    owner, stranger = await keyed.tenant("acme"), await keyed.tenant("zeta")
    await store(owner, "resp_1")
    refused = []
    for object_id in ("resp_1", "resp_2"):
        for call in (fetch, update, delete):
            with pytest.raises(ObjectNotFound) as error:
                await call(stranger, object_id)
            refused.append(error.value.message)
    assert len(set(refused)) == 1
    await store(stranger, "resp_1", b"other")
    assert (await fetch(owner, "resp_1"), await fetch(stranger, "resp_1")) == (DATA, b"other")
    other_key = await keyed.tenant("acme")
    assert await fetch(other_key, "resp_1") == DATA


async def test_what_has_expired_is_gone_without_a_trace(keyed: Keyed) -> None:
    client = await keyed.tenant("acme")
    await store(client, "short", ttl_seconds=1)

    async def is_gone() -> bool:
        return not await names(keyed.stack)

    await eventually(is_gone)
    with pytest.raises(ObjectNotFound):
        await fetch(client, "short")


async def test_its_time_to_live(keyed: Keyed) -> None:
    client = await keyed.tenant("acme")
    await store(client, "a")
    await store(client, "b", ttl_seconds=10)
    redis, prefix = keyed.stack.redis, "kakeya:{objects:acme}:"
    assert DAY_MS / 2 < await redis.pttl(f"{prefix}object:a") <= DAY_MS
    assert 0 < await redis.pttl(f"{prefix}object:b") <= 10_000
    for name in ("expiries", "sizes"):
        assert DAY_MS / 2 < await redis.pttl(prefix + name) <= DAY_MS


async def test_one_is_changed_by_who_knows_its_version(keyed: Keyed) -> None:
    client = await keyed.tenant("acme")
    await store(client, "a", b"one")
    assert await version_of(client, "a") == 1
    assert await update(client, "a", b" two", version=1, appends=True) == 2
    for late in (1, 3):
        for appends in (False, True):
            with pytest.raises(ObjectChanged):
                await update(client, "a", b"lost", version=late, appends=appends)
    assert (await fetch(client, "a"), await version_of(client, "a")) == (b"one two", 2)
    assert await update(client, "a", b"three", version=2) == 3
    await store(client, "a", b"four")
    assert (await fetch(client, "a"), await version_of(client, "a")) == (b"four", 4)
    await delete(client, "a")
    with pytest.raises(ObjectNotFound):
        await update(client, "a", version=4)
    await store(client, "a")
    assert await version_of(client, "a") == 1


async def test_of_many_that_write_at_once_none_is_lost(keyed: Keyed) -> None:
    client, num_writers, num_each = await keyed.tenant("acme"), 8, 10

    async def write(number: int) -> None:
        for count in range(num_each):
            while True:
                try:
                    found = await answer(client.runtime.FetchObject(api.FetchObjectRequest(id="a")))
                    own, appends = bytes([number, count]), bool(count % 2)
                    data = own if appends else found.data + own
                    await update(client, "a", data, version=found.version, appends=appends)
                    break
                except ObjectChanged:
                    continue

    await store(client, "a", b"")
    await asyncio.gather(*map(write, range(num_writers)))
    data = await fetch(client, "a")
    pairs = [(data[place], data[place + 1]) for place in range(0, len(data), 2)]
    assert len(pairs) == num_writers * num_each
    for number in range(num_writers):
        assert [count for writer, count in pairs if writer == number] == [*range(num_each)]


async def test_a_change_renews_its_time_to_live(keyed: Keyed) -> None:
    client = await keyed.tenant("acme")
    redis, prefix = keyed.stack.redis, "kakeya:{objects:acme}:"
    for appends in (False, True):
        await store(client, "a", ttl_seconds=10)
        await update(client, "a", version=await version_of(client, "a"), appends=appends)
        for name in ("object:a", "expiries", "sizes"):
            assert DAY_MS / 2 < await redis.pttl(prefix + name) <= DAY_MS


async def test_what_is_appended_is_all_that_redis_writes_down(keyed: Keyed) -> None:
    """Else a conversation would cost its whole text in the append-only file at each turn."""
    client, redis = await keyed.tenant("acme"), keyed.stack.redis
    await store(client, "a", bytes(100_000))
    commands: list[str] = []
    async with redis.monitor() as monitor:
        await update(client, "a", b"more", appends=True)
        await redis.ping()
        async for command in monitor.listen():
            commands.append(command["command"])
            if command["command"] == "PING":
                break
    written = [command for command in commands if ":object:a" in command and command.startswith(("APPEND", "SET "))]
    assert len(written) == 1
    assert written[0].startswith("APPEND ")
    assert written[0].endswith(" more")


async def test_a_change_has_the_same_bounds(keyed: Keyed) -> None:
    quota = admin_pb2.Quota(max_reserved_bytes=2 << 20)
    await answer(keyed.admin.admin.SetQuota(admin_pb2.SetQuotaRequest(tenant="acme", quota=quota)))
    client = await keyed.tenant("acme")
    await store(client, "a", bytes((1 << 20) - 1))
    await store(client, "b", bytes((1 << 20) - 1))
    with pytest.raises(InvalidField) as refused:
        await update(client, "a", bytes(2), appends=True)
    assert refused.value.metadata == {"field": "data"}
    assert await update(client, "a", bytes(1), appends=True) == 2
    assert await update(client, "b", bytes(1), appends=True) == 2
    await update(client, "b", bytes(10), version=2)
    await store(client, "c", bytes((1 << 20) - 10))
    with pytest.raises(QuotaExceeded):
        await update(client, "b", bytes(11), version=3)
    assert (await fetch(client, "b"), await version_of(client, "b")) == (bytes(10), 3)
    for fields in ({"version": 0}, {"ttl_seconds": 30 * 86_400 + 1}, {"data": bytes((1 << 20) + 1)}):
        with pytest.raises(InvalidField) as refused:
            await update(client, "b", **fields)
        assert refused.value.metadata == {"field": next(iter(fields))}


async def test_bytes_are_counted_in_the_tenants_quota(keyed: Keyed) -> None:
    quota = admin_pb2.Quota(max_reserved_bytes=1000)
    await answer(keyed.admin.admin.SetQuota(admin_pb2.SetQuotaRequest(tenant="acme", quota=quota)))
    client = await keyed.tenant("acme")
    await store(client, "a", bytes(600))
    await store(client, "a", bytes(700))
    with pytest.raises(QuotaExceeded) as refused:
        await store(client, "b", bytes(301))
    assert refused.value.metadata == {"quota": "object_bytes", "limit": "1000", "subject": "tenant:acme"}
    await store(client, "b", bytes(300))
    await delete(client, "a")
    await store(client, "c", bytes(700))
    assert await fetch(client, "b") == bytes(300)


async def test_what_has_expired_is_in_no_quota(keyed: Keyed) -> None:
    quota = admin_pb2.Quota(max_reserved_bytes=1000)
    await answer(keyed.admin.admin.SetQuota(admin_pb2.SetQuotaRequest(tenant="acme", quota=quota)))
    client = await keyed.tenant("acme")
    await store(client, "a", bytes(900), ttl_seconds=1)
    await store(client, "b", bytes(100))

    async def fits() -> bool:
        try:
            await store(client, "c", bytes(900))
        except QuotaExceeded:
            await asyncio.sleep(0.05)
            return False
        return True

    await eventually(fits)
    assert await keyed.stack.redis.hgetall("kakeya:{objects:acme}:sizes") == {"b": "100", "c": "900", "total:": "1000"}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"id": ""}, "id"),
        ({"id": "a b"}, "id"),
        ({"id": "a}"}, "id"),
        ({"id": "a" * 129}, "id"),
        ({"id": "a", "data": bytes((1 << 20) + 1)}, "data"),
        ({"id": "a", "ttl_seconds": 30 * 86_400 + 1}, "ttl_seconds"),
    ],
)
async def test_what_cannot_be_kept(keyed: Keyed, fields: dict[str, Any], field: str) -> None:
    client = await keyed.tenant("acme")
    with pytest.raises(InvalidField) as refused:
        await answer(client.runtime.StoreObject(api.StoreObjectRequest(**fields)))
    assert refused.value.metadata == {"field": field}
    assert not await names(keyed.stack)


async def test_a_megabyte_is_kept_and_not_logged(keyed: Keyed, capsys: pytest.CaptureFixture[str]) -> None:
    client = await keyed.tenant("acme")
    data = b"secret" * ((1 << 20) // 6)
    await store(client, "a", data, ttl_seconds=30 * 86_400)
    assert await fetch(client, "a") == data
    assert "secret" not in capsys.readouterr().out
