"""What drafts for a session goes where the session goes."""

import pytest

from kakeya_shared.errors.tree import InvalidField
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import FakeWorker, SnapshotFiles
from tests.unit.router.lanes.test_moving import is_on
from tests.unit.router.lanes.test_parking import lean_on_the_store, turns
from tests.unit.router.lapses import be_lost
from tests.unit.router.stack import FORGETFUL, Client, Stack, answer, eventually


@pytest.fixture
def files() -> SnapshotFiles:
    return SnapshotFiles()


@pytest.fixture
async def worker(stack: Stack, client: Client, files: SnapshotFiles) -> FakeWorker:
    return await stack.worker(client, num_lanes=8, files=files)


async def test_it_is_asked_for_and_left_out(client: Client, worker: FakeWorker) -> None:
    drafting, plain = await client.session(speculation="ngram"), await client.session()
    assert worker.drafting == {drafting: "ngram", plain: ""}


async def test_a_fork_has_its_source_s_unless_it_says_another(client: Client, worker: FakeWorker) -> None:
    source = await client.session(speculation="ngram")
    await client.append(source, range(8))
    point = api.ForkPoint(session_id=source)
    same = (await client.create(fork_from=point)).session_id
    other = (await client.create(fork_from=point, speculation="none")).session_id
    by_fork = (await answer(client.runtime.ForkSession(api.ForkSessionRequest(source=point)))).session.session_id
    earlier = (await client.create(fork_from=api.ForkPoint(session_id=source, boundary=3))).session_id
    found = [worker.drafting[session_id] for session_id in (same, other, by_fork, earlier)]
    assert found == ["ngram", "none", "ngram", "ngram"]


async def test_it_is_kept_where_a_session_is_parked_or_its_worker_lost(
    stack: Stack, client: Client, worker: FakeWorker, files: SnapshotFiles
) -> None:
    session_id = await client.session(speculation="ngram")
    journaled = await client.session(speculation="ngram")
    await client.append(journaled, [1, 2, 3])
    await lean_on_the_store(stack, client, session_id)
    await client.park(session_id)
    worker.drafting.clear()
    await client.generate(session_id, 2)
    assert worker.drafting == {session_id: "ngram"}
    other = await stack.worker(client, "worker-b", files=files)
    await be_lost(worker)
    await client.generate(session_id, 2)
    await client.generate(journaled, 2)
    assert other.drafting == {session_id: "ngram", journaled: "ngram"}


async def test_it_moves_along_to_a_worker_that_is_sent_the_lane(stack: Stack) -> None:
    client = await stack.router(**FORGETFUL)
    left = await stack.worker(client)
    session_id = await client.session(speculation="ngram")
    await turns(client, session_id, 2)
    other = await stack.worker(client, "worker-b")
    await client.drain(left.worker_id)
    await eventually(lambda: is_on(client, session_id, other))
    assert other.calls["WriteLane"] == 1
    assert other.drafting == {session_id: "ngram"}


async def test_a_name_is_short(client: Client, worker: FakeWorker) -> None:
    with pytest.raises(InvalidField) as caught:
        await client.create(speculation="n" * 65)
    assert caught.value.metadata["field"] == "speculation"
