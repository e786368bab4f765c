"""A CreateSession whose answer its caller never saw is given up by its request id: nothing stays of it."""

import asyncio

import pytest

from kakeya_router.store.keys import PoolKeys
from kakeya_router.store.session_record import PoolName
from kakeya_shared.errors.tree import InvalidField
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.keyed import Keyed
from tests.unit.router.stack import Client, Stack, answer, eventually

_TTL_MS = 600_000
ONCE = PoolKeys(PoolName("tiny")).request("", "once")


async def give_up(client: Client, request_id: str = "once", **fields: str) -> int:
    request = api.CloseSessionRequest(request_id=request_id, **fields)
    return int((await answer(client.runtime.CloseSession(request))).final_history_length)


async def refused(creating: "asyncio.Task[str]") -> None:
    with pytest.raises(InvalidField, match="given up") as raised:
        await creating
    assert raised.value.metadata["field"] == "request_id"


async def nothing_left(stack: Stack, worker: FakeWorker) -> None:
    """But that the request was given up."""

    async def is_so() -> bool:
        return await stack.session_keys() == {ONCE} and not worker.lanes

    await eventually(is_so)
    assert 0 < await stack.redis.pttl(ONCE) <= _TTL_MS


async def test_one_that_was_answered(stack: Stack, client: Client, worker: FakeWorker) -> None:
    other_router = await stack.router()
    session_id = await client.session(request_id="once")
    kept = await client.session(request_id="another")
    await client.append(session_id, range(30))
    assert await give_up(other_router) == 30
    assert list(worker.lanes) == [kept]
    await refused(asyncio.create_task(client.session(request_id="once")))
    assert await give_up(client) == 0, "again, it is the same"
    await client.close(kept)
    await nothing_left(stack, worker)


async def test_one_that_comes_later(stack: Stack, client: Client, worker: FakeWorker) -> None:
    assert await give_up(client) == 0
    await refused(asyncio.create_task(client.session(request_id="once")))
    await nothing_left(stack, worker)


async def test_one_that_is_under_way(stack: Stack, client: Client, worker: FakeWorker) -> None:
    other_router = await stack.router()
    worker.flowing.clear()
    creating = asyncio.create_task(client.session(request_id="once"))

    async def has_begun() -> int:
        return worker.calls["OpenSession"]

    await eventually(has_begun)
    giving_up = asyncio.create_task(give_up(other_router))

    async def is_given_up() -> bool:
        return str(await stack.redis.get(ONCE)).startswith("-")

    await eventually(is_given_up)
    worker.flowing.set()
    assert await giving_up == 0
    await creating  # its router knows nothing of it
    await nothing_left(stack, worker)


async def test_one_whose_closing_broke_off_is_closed_by_the_next(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    session_id = await client.session(request_id="once")
    await stack.redis.set(ONCE, f"-{session_id}", px=_TTL_MS)  # so far came a router before it vanished
    assert await give_up(client) == 0
    await nothing_left(stack, worker)


async def test_a_fork_is_given_up_and_its_source_is_not(client: Client, worker: FakeWorker) -> None:
    source = await client.session()
    await client.append(source, [1, 2, 3])
    await client.session(request_id="once", fork_from=api.ForkPoint(session_id=source))
    assert await give_up(client) == 3
    assert list(worker.lanes) == [source]
    await refused(asyncio.create_task(client.session(request_id="once", fork_from=api.ForkPoint(session_id=source))))


async def test_one_that_waits_in_the_queue(stack: Stack) -> None:
    client = await stack.router(admission="queue", queue_seconds=60)
    worker = await stack.worker(client, num_lanes=1)
    only = await client.session()
    waiting = asyncio.create_task(client.session(request_id="once"))

    async def stands() -> bool:
        return bool(await stack.redis.zcard(PoolKeys(PoolName("tiny")).queue))

    await eventually(stands)
    assert await give_up(client) == 0
    await refused(waiting)
    assert list(worker.lanes) == [only]


async def test_another_tenants_request_is_not_touched(keyed: Keyed) -> None:
    worker = await keyed.worker()
    owner, stranger = await keyed.tenant("acme"), await keyed.tenant("zeta")
    session_id = await owner.session(request_id="once")
    assert await give_up(stranger) == 0
    assert list(worker.lanes) == [session_id]
    assert (await owner.create(request_id="once")).session_id == session_id


@pytest.mark.parametrize("fields", [{"session_id": "tiny.x"}, {"request_id": "a" * 129}, {"request_id": "a\nb"}])
async def test_what_is_no_such_call(client: Client, worker: FakeWorker, fields: dict[str, str]) -> None:
    with pytest.raises(InvalidField) as raised:
        await give_up(client, **{"request_id": "once", **fields})
    assert raised.value.metadata["field"] == "request_id"
