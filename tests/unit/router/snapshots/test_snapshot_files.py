"""Files in the snapshot store where Redis does not answer for once: each is its session's or removed, without the sweep
of a worker.
"""

from collections.abc import Callable
from typing import Any

import pytest

from kakeya_router.lanes import parking
from kakeya_router.snapshots.snapshotting import FEWEST_TOKENS, Mark
from kakeya_router.store import persistence
from kakeya_router.store.connection import RedisConnection
from kakeya_router.store.session_record import SessionId, SessionRecord
from kakeya_router.store.sessions import stored_snapshots
from kakeya_router.store.sessions.journal_store import JournalStore
from kakeya_shared.errors.tree import KakeyaError, StoreUnavailable
from tests.unit.router.fake_worker import SnapshotFiles
from tests.unit.router.lanes.test_lost_lanes import Desk, desk
from tests.unit.router.operations.test_recovery import Pair, files, nothing_stored, pair
from tests.unit.router.session_stores import SessionStores
from tests.unit.router.sessions.test_rewinds import record_of, turn
from tests.unit.router.stack import Client, Stack, eventually, has_snapshot
from tests.unit.router.workers.test_lost_answers import Lose, lose

__all__ = ["desk", "files", "lose", "pair"]  # fixtures

Refuse = Callable[[str], None]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistence, "_PAUSE_SECONDS", 0.01)


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Has the next run of a script not come to Redis."""
    run = RedisConnection.script
    refused: list[str] = []

    async def script(self: RedisConnection, name: str, keys: Any, **arguments: Any) -> Any:
        if name in refused:
            refused.remove(name)
            raise StoreUnavailable("Redis does not answer", retry_after_seconds=0.1)
        return await run(self, name, keys, **arguments)

    monkeypatch.setattr(RedisConnection, "script", script)
    return refused.append


async def only_its_own(stack: Stack, files: SnapshotFiles, session_id: str) -> bool:
    """Whether the store holds what the session's record names, and nothing else."""
    record = await record_of(stack, session_id)
    return set(files.contents) == {each.name for each in stored_snapshots.parse(record.get("snapshots", ""))}


async def no_files(files: SnapshotFiles) -> bool:
    return not files.contents


@pytest.mark.parametrize("is_run", [True, False], ids=["the answer is lost", "it is not run"])
async def test_a_file_is_kept_although_redis_does_not_answer_for_once(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles, lose: Lose, refuse: Refuse, *, is_run: bool
) -> None:
    session_id = await client.session()
    for _ in range(5):  # from the third on, each replaces one
        (lose if is_run else refuse)("set_snapshots")
        length = await turn(stack, client, session_id, 40, 2)
        await eventually(lambda: only_its_own(stack, files, session_id))
    await client.close(session_id)
    await eventually(lambda: no_files(files))
    assert length == 5 * 42


async def test_a_turn_is_written_although_redis_does_not_answer_for_once(
    desk: Desk, files: SnapshotFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when it is asked whether it is time, nor when a turn has ended meanwhile."""
    await desk.change(boundaries="5")
    record, get, answers = await desk.record(), desk.store.get, [False, True, True, False]

    async def failing(session_id: SessionId) -> SessionRecord | None:
        if answers and not answers.pop(0):
            raise StoreUnavailable("Redis does not answer", retry_after_seconds=0.1)
        return await get(session_id)

    monkeypatch.setattr(desk.store, "get", failing)
    desk.snapshotting.consider(record, 5, is_turn=True)
    desk.snapshotting.consider(record, 5, is_turn=True)
    await eventually(lambda: has_snapshot(desk.stack, desk.session_id, 5))
    await desk.tasks.drain(60)
    assert (answers, desk.worker.calls["WriteSnapshot"]) == ([], 1)
    assert await only_its_own(desk.stack, files, desk.session_id)


async def test_in_the_middle_of_a_turn_nothing_is_written_before_it_is_due(desk: Desk) -> None:
    record, mark = await desk.record(), Mark()
    desk.snapshotting.consider(record, FEWEST_TOKENS, is_turn=False, mark=mark)
    due_length = mark.due_length
    assert due_length > FEWEST_TOKENS
    for length, num_written in ((due_length - 1, 0), (due_length, 1)):
        desk.worker.lanes[desk.session_id].token_ids = list(range(length))
        await desk.change(journal_length=length)
        desk.snapshotting.consider(record, length, is_turn=False, mark=mark)
        await desk.tasks.drain(60)
        assert desk.worker.calls["WriteSnapshot"] == num_written
    assert mark.due_length == 2 * due_length


@pytest.mark.parametrize("is_run", [True, False], ids=["the answer is lost", "it is not run"])
async def test_a_closed_session_leaves_no_file_although_redis_does_not_answer_for_once(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles, lose: Lose, refuse: Refuse, *, is_run: bool
) -> None:
    session_id = await client.session()
    await turn(stack, client, session_id, 20, 2)
    (lose if is_run else refuse)("delete_session")
    with pytest.raises(StoreUnavailable):
        await client.close(session_id)
    await eventually(lambda: nothing_stored(stack))
    await eventually(lambda: no_files(files))


async def test_a_file_that_comes_too_late_for_parking_is_the_sessions(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "_WRITE_SECONDS", 0.1)
    session_id = await client.session()
    await client.append(session_id, range(20))
    worker = pair.of(session_id)
    worker.writing.clear()
    assert (await client.park(session_id)).history_length == 20  # its journal has all of it
    worker.writing.set()
    await eventually(lambda: has_snapshot(stack, session_id, 20))
    assert await only_its_own(stack, files, session_id)


async def test_a_rewind_that_is_taken_from_its_router_leaves_no_file(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lane alone can go back there, so the place is written first."""
    session_id = await client.session()
    for _ in range(3):
        await turn(stack, client, session_id, 4, 2)
    rewind = JournalStore.rewind

    async def late(store: SessionStores, *arguments: Any) -> Any:
        await stack.redis.hset(f"kakeya:{{tiny}}:op:{session_id}", "claim", "of another router")
        return await rewind(store, *arguments)

    monkeypatch.setattr(JournalStore, "rewind", late)
    num_written = pair.of(session_id).calls["WriteSnapshot"]
    with pytest.raises(KakeyaError):
        await client.rewind(session_id, 3)
    assert pair.of(session_id).calls["WriteSnapshot"] == num_written + 1
    await eventually(lambda: only_its_own(stack, files, session_id))
