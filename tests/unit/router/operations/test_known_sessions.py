"""Operations on a session that the router has seen before begin without reading it first, and find it as it is now."""

from typing import Any

import pytest

from kakeya_router.store.outcomes import BeginOperation
from kakeya_router.store.sessions import operation_store
from kakeya_router.store.sessions.operation_store import OperationStore
from kakeya_router.store.sessions.session_store import Answer, SessionStore
from kakeya_shared.errors.tree import HistoryLengthMismatch, SessionNotFound
from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.keyed import keyed_on
from tests.unit.router.stack import Client, Stack, turn_request


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sessions that were read, one after the other."""
    found, get = list[str](), SessionStore.get

    async def counted(self: SessionStore, session_id: str) -> object:
        found.append(session_id)
        return await get(self, session_id)  # type: ignore[arg-type]  # an id is a str

    monkeypatch.setattr(SessionStore, "get", counted)
    return found


async def finds_nothing(client: Client, session_id: str) -> None:
    """By any call that begins with what the router has seen."""
    for call in (
        client.append(session_id, [2]),
        client.generate(session_id, 2),
        client.turn(turn_request(session_id, [2])),
        client.rewind(session_id, 1),
        client.tag(session_id, "ANSWER_END", 1, bytes(32), op_id="any"),
    ):
        with pytest.raises(SessionNotFound):
            await call


async def test_a_session_is_read_once(client: Client, worker: FakeWorker, read: list[str]) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    assert read == [session_id]
    for length in (3, 5):
        assert (await client.generate(session_id, 2))[-1].done.history_length == length
    assert (await client.append(session_id, [6])).history_length == 6
    answered = await client.turn(turn_request(session_id, [7], 2, boundary=6))
    await client.tag(session_id, "ANSWER_END", 9, bytes(32), op_id=answered.done.op_id)
    assert (await client.rewind(session_id, 8)).history_length == 8
    assert read == [session_id]


async def test_it_has_grown_and_moved_meanwhile(
    stack: Stack, client: Client, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes, begin = list[str](), OperationStore.begin_operation

    async def noted(self: OperationStore, *args: Any, **named: Any) -> Answer[BeginOperation]:
        answer = await begin(self, *args, **named)
        outcomes.append(answer.outcome)
        return answer

    other = await stack.router()
    session_id = await client.session()
    await client.append(session_id, [1])
    await other.park(session_id)
    second = await stack.worker(client, worker_id="worker-b")
    await client.drain("worker-a")
    await other.append(session_id, [2, 3])
    assert second.lanes.keys() == {session_id}
    monkeypatch.setattr(OperationStore, "begin_operation", noted)
    assert (await client.append(session_id, [4], expected_history_length=3)).history_length == 4
    assert second.lanes[session_id].token_ids == [1, 2, 3, 4]
    await client.append(session_id, [5])
    assert outcomes == [BeginOperation.MOVED, BeginOperation.BEGUN, BeginOperation.BEGUN]


async def test_it_was_closed_meanwhile(stack: Stack, client: Client, worker: FakeWorker) -> None:
    other = await stack.router()
    session_id = await client.session()
    await client.append(session_id, [1])
    await other.close(session_id)
    await finds_nothing(client, session_id)


async def test_a_turn_at_a_place_that_is_not_the_end_any_more_is_in_a_fork(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    other = await stack.router()
    session_id = await client.session(client_label="of the source")
    await client.append(session_id, [1])
    await other.append(session_id, [2, 3])
    forked = await client.turn(turn_request(session_id, [4], 2, boundary=1))
    assert forked.session.session_id != session_id
    assert worker.lanes[forked.session.session_id].token_ids[:2] == [1, 4]
    assert worker.lanes[session_id].token_ids == [1, 2, 3]
    assert (await client.info(forked.session.session_id)).history_length == 4


async def test_who_goes_on_with_an_older_operation_is_told_the_length_of_now(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    other = await stack.router()
    session_id = await client.session()
    await client.append(session_id, [1])
    await client.generate(session_id, 2, op_id="mine")
    await other.append(session_id, [4, 5])
    with pytest.raises(HistoryLengthMismatch) as raised:
        await client.generate(session_id, 5, op_id="mine", resume_token_ids=[101])
    assert raised.value.metadata["history_length"] == "5"


async def test_it_is_nobody_elses(redis_url: str) -> None:
    async with keyed_on(redis_url) as keyed:
        await keyed.worker()
        owner, other = await keyed.tenant("acme"), await keyed.tenant("globex")
        session_id = await owner.session()
        await owner.append(session_id, [1])
        await finds_nothing(other, session_id)
        assert (await owner.append(session_id, [2])).history_length == 2


async def test_those_used_longest_ago_are_read_anew(
    client: Client, worker: FakeWorker, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_store, "_MAX_KNOWN", 2)
    first, second, third = [await client.session() for _ in range(3)]
    for session_id in (first, second, first, third, first):
        await client.append(session_id, [1])
    assert read == [first, second, third]
    await client.append(second, [1])
    assert read == [first, second, third, second]
