"""What is left in Redis of responses and conversations that were deleted, or have expired: no key, and no text."""

import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import redis

from kakeya_http_shim.responses_api.kept.packing import records
from tests.integration.http_stack import HttpStack, http_stack
from tests.integration.open_http import MODEL
from tests.integration.processes import eventually, wait_until

TTL_SECONDS = 2
SECRET = "The launch is on the 9th of May."


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpStack]:
    flags = ("--live-sessions", "on", f"--response-ttl-seconds={TTL_SECONDS}")
    with http_stack(tmp_path_factory.mktemp("stored"), *flags) as made:
        yield made


@pytest.fixture
async def http(stack: HttpStack) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {stack.key}"}
    async with httpx.AsyncClient(base_url=stack.base_url, headers=headers, timeout=60) as http:
        yield http


@pytest.fixture
def store(stack: HttpStack) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(stack.runtime.redis.url, protocol=2) as store:
        yield store


def objects(store: "redis.Redis") -> dict[bytes, bytes]:
    """All objects of all tenants, by their keys."""
    keys = [key for key in store.scan_iter("*objects:*") if store.type(key) == b"string"]
    found = {key: store.get(key) for key in keys}
    return {key: data for key, data in found.items() if isinstance(data, bytes)}


def written(store: "redis.Redis") -> bytes:
    """All that is in the append-only file."""
    directory = Path(str(store.config_get("dir")["dir"]))
    return b"".join(path.read_bytes() for path in directory.rglob("appendonly*") if path.is_file())


def write_anew(store: "redis.Redis") -> None:
    store.bgrewriteaof()
    wait_until(
        lambda: (
            not store.info("persistence")["aof_rewrite_in_progress"]
            and not store.info("persistence")["aof_rewrite_scheduled"]
        ),
        "the append-only file is written anew",
    )


def says(data: bytes) -> bool:
    """Whether an object has the secret."""
    return any(SECRET in zlib.decompress(record).decode() for record in records(data))


async def stored(http: httpx.AsyncClient) -> tuple[str, str]:
    """A response and a conversation that have the secret."""
    items = [{"role": "user", "content": SECRET}]
    conversation = (await http.post("/conversations", json={"items": items})).json()["id"]
    body = {"model": MODEL, "input": SECRET, "max_output_tokens": 2}
    return (await http.post("/responses", json=body)).json()["id"], conversation


async def gone_from(http: httpx.AsyncClient, store: "redis.Redis", packed: list[bytes]) -> None:
    assert objects(store) == {}
    before = written(store)
    assert any(data in before for data in packed)  # as the documents say
    write_anew(store)
    there = written(store)
    assert not any(data in there for data in packed)
    assert SECRET.encode() not in there


async def test_nothing_is_left_of_what_was_deleted(
    stack: HttpStack, http: httpx.AsyncClient, store: "redis.Redis"
) -> None:
    response, conversation = await stored(http)
    packed = [data for data in objects(store).values() if says(data)]
    assert len(packed) == 2
    assert all(data in written(store) for data in packed)
    assert (await http.delete(f"/responses/{response}")).status_code == 200
    assert (await http.delete(f"/conversations/{conversation}")).status_code == 200
    await gone_from(http, store, packed)
    logs = "".join(
        each.log.read_text() for each in (*stack.runtime.shims, *stack.runtime.routers, *stack.runtime.workers)
    )
    assert SECRET not in logs


async def test_nothing_is_left_of_what_has_expired(http: httpx.AsyncClient, store: "redis.Redis") -> None:
    await stored(http)
    packed = [data for data in objects(store).values() if says(data)]

    async def is_over() -> bool:
        return not objects(store)

    await eventually(is_over, "the objects expire")
    await gone_from(http, store, packed)
    assert [*store.scan_iter("*objects:*")] == []
