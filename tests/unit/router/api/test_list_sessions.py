"""A caller's sessions, a page at a time."""

import asyncio
from typing import Any

import pytest

from kakeya_shared.errors.tree import InvalidField
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.access.test_foreign_sessions import _everything
from tests.unit.router.fake_worker import BYTES_PER_TOKEN, LANE_BYTES, FakeWorker, SnapshotFiles
from tests.unit.router.keyed import Keyed
from tests.unit.router.lapses import be_lost
from tests.unit.router.sessions.test_forks import SESSION
from tests.unit.router.stack import FORGETFUL, Client, Stack, answer, eventually


async def page(client: Client, **fields: Any) -> api.ListSessionsResponse:
    return await answer(client.runtime.ListSessions(api.ListSessionsRequest(**fields)))


async def listed(client: Client, **fields: Any) -> list[api.Session]:
    """Of all pages."""
    sessions: list[api.Session] = []
    token = ""
    while True:
        found = await page(client, page_token=token, **fields)
        sessions += found.sessions
        token = found.next_page_token
        if not token:
            return sessions


async def states(client: Client) -> dict[str, api.SessionState.ValueType]:
    return {session.session_id: session.state for session in await listed(client)}


async def test_a_session_is_listed_as_its_info_is(client: Client, worker: FakeWorker) -> None:
    assert await listed(client) == []
    session_id = await client.session(client_label="mine")
    await client.append(session_id, [1, 2])
    (found,) = await listed(client)
    assert found.idle_seconds > 0
    found.idle_seconds = 0
    assert found == api.Session(
        session_id=session_id,
        client_label="mine",
        model="Tiny",
        state=api.SESSION_STATE_OPEN,
        history_length=2,
        kv_live_bytes=2 * BYTES_PER_TOKEN,
        reserved_bytes=LANE_BYTES,
    )
    await client.close(session_id)
    assert await listed(client) == []


async def test_a_busy_session_is_not_idle_and_has_what_is_journaled(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    session_id = await client.session()
    worker.flowing.clear()
    appending = asyncio.create_task(client.append(session_id, [1, 2, 3]))

    async def is_journaled() -> bool:
        return (await listed(client))[0].history_length == 3

    await eventually(is_journaled)
    (found,) = await listed(client)
    assert (found.state, found.idle_seconds, found.kv_live_bytes) == (api.SESSION_STATE_OPEN, 0, 0)
    worker.flowing.set()
    await appending


async def test_only_the_callers_own_sessions_are_listed(keyed: Keyed) -> None:
    await keyed.worker()
    one, other = await keyed.tenant("one"), await keyed.tenant("other")
    own = {await one.session() for _ in range(2)}
    foreign = await other.session()
    colleague = await keyed.tenant("one")
    for client in (one, colleague):
        assert (await states(client)).keys() == own
    assert (await states(other)).keys() == {foreign}


async def test_a_list_changes_nothing(keyed: Keyed) -> None:
    await keyed.worker(beating=False)
    client = await keyed.tenant("one")
    await client.append(await client.session(), [1])
    await client.session()
    before = await _everything(keyed.stack)
    assert len(await listed(client)) == 2
    assert await _everything(keyed.stack) == before


async def test_sessions_whose_worker_is_gone(stack: Stack) -> None:
    """Shown as parked or lost from the first moment, though nobody has written it down yet; and never resumed."""
    client = await stack.router(**FORGETFUL)
    worker = await stack.worker(client, num_lanes=8)
    recoverable, forgotten, failed = [await client.session() for _ in range(3)]
    await client.append(recoverable, [1])
    for token_ids in ([1, 2], [3]):
        await client.append(forgotten, token_ids)
    await stack.redis.hset(SESSION.format(failed), "state", "failed")
    found = await states(client)
    assert found.pop(failed) == api.SESSION_STATE_FAILED
    assert set(found.values()) == {api.SESSION_STATE_OPEN}
    await stack.redis.hset("kakeya:{tiny}:worker:worker-a", "incarnation", "another")
    assert {session.session_id: (session.state, session.reserved_bytes) for session in await listed(client)} == {
        recoverable: (api.SESSION_STATE_PARKED, 0),
        forgotten: (api.SESSION_STATE_LOST, 0),
        failed: (api.SESSION_STATE_LOST, 0),
    }
    assert (await client.info(recoverable)).state == api.SESSION_STATE_PARKED
    assert worker.calls["OpenSession"] == 3


async def test_a_parked_session_stays_parked(stack: Stack, client: Client) -> None:
    files = SnapshotFiles()
    worker = await stack.worker(client, "worker-a", files=files)
    session_id = await client.session()
    await client.append(session_id, range(5))
    other = await stack.worker(client, "worker-b", files=files)
    await be_lost(worker)

    async def is_parked() -> bool:
        return await stack.redis.hget(SESSION.format(session_id), "state") == "parked"

    await eventually(is_parked)
    (found,) = await listed(client)
    assert (found.session_id, found.state, found.history_length) == (session_id, api.SESSION_STATE_PARKED, 5)
    assert not other.lanes


async def test_a_closing_session_is_not_listed(stack: Stack, client: Client, worker: FakeWorker) -> None:
    closing, opening = await client.session(), await client.session()
    await stack.redis.hset(SESSION.format(closing), "state", "closing")
    await stack.redis.hset(SESSION.format(opening), "state", "opening")
    assert await states(client) == {opening: api.SESSION_STATE_OPENING}


async def test_many_sessions_come_in_pages_over_all_pools(stack: Stack) -> None:
    client = await stack.router()
    await stack.worker(client, "worker-a", num_lanes=150)
    await stack.worker(client, "worker-b", num_lanes=2, pool="other", model="Other")
    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(client.session(model=model)) for model in ["Tiny"] * 150 + ["Other"] * 2]
    first = await page(client, page_size=20)
    assert 0 < len(first.sessions) < 150
    assert first.next_page_token
    assert sorted(session.session_id for session in await listed(client, page_size=20)) == sorted(
        task.result() for task in made
    )


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"page_size": 1001}, "page_size"),
        ({"page_token": "tiny"}, "page_token"),
        ({"page_token": "tiny." + "9" * 20}, "page_token"),
    ],
)
async def test_a_list_that_makes_no_sense_is_refused(client: Client, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as raised:
        await page(client, **fields)
    assert raised.value.metadata["field"] == field
    assert not (await page(client, page_size=1000)).sessions
