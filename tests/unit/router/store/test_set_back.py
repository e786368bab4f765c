"""Redis goes back to what it held before, while workers and routers live: what they hold of later is nobody's."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from kakeya_router.snapshots.past import Past
from kakeya_router.store.session_record import LaneState
from kakeya_router.store.sessions.journal_store import JournalStore
from kakeya_router.store.sessions.session_store import pack
from kakeya_shared.contract.history_digest import EMPTY_HISTORY, extended_digest
from kakeya_shared.errors.tree import (
    BoundaryNotReachable,
    Draining,
    HistoryLengthMismatch,
    NoWorker,
    OperationStopped,
    StaleEpoch,
    WorkerLost,
)
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import verifier_pb2 as worker_api
from tests.redis_server import data_of, set_back
from tests.unit.router.fake_worker import FakeWorker, Lane, SnapshotFiles
from tests.unit.router.lapses import die
from tests.unit.router.operations.test_journal import RECORD
from tests.unit.router.operations.test_recovery import Pair
from tests.unit.router.sessions.test_forks import fork_of
from tests.unit.router.stack import Client, Stack, answer, eventually, has_snapshot

HISTORY = [*range(30), *(100 + length for length in range(30, 35))]
"""Of a session's first turn; its lane holds 20 tokens."""


@pytest.fixture
def files(request: pytest.FixtureRequest) -> SnapshotFiles | None:
    return SnapshotFiles() if request.param == "store" else None


@pytest.fixture
async def pair(stack: Stack, client: Client, files: SnapshotFiles | None) -> Pair:
    return Pair(*[await stack.worker(client, name, num_lanes=60, files=files) for name in ("worker-a", "worker-b")])


async def turn(stack: Stack, client: Client, session_id: str, files: SnapshotFiles | None = None) -> None:
    await client.append(session_id, range(30))
    (*_, last) = await client.generate(session_id, 5)
    if files is not None:
        await eventually(lambda: has_snapshot(stack, session_id, last.done.history_length))


async def holder(client: Client, session_id: str, pair: Pair) -> FakeWorker:
    """The one that the record says."""
    worker_id = (await client.info(session_id)).worker
    return next(worker for worker in pair.workers if worker.worker_id == worker_id)


async def goes_on(client: Client, session_id: str, pair: Pair) -> None:
    await client.append(session_id, [1, 2, 3])
    await client.generate(session_id, 4)


async def says_something_else(client: Client, session_id: str, pair: Pair) -> None:
    """So that its lane has as many tokens as the history on record, and others."""
    await client.rewind(session_id, 30)
    await client.append(session_id, [9] * 5)


async def is_rewound(client: Client, session_id: str, pair: Pair) -> None:
    await client.rewind(session_id, 30)


async def begins_anew(client: Client, session_id: str, pair: Pair) -> None:
    await client.rewind(session_id, 0)
    await client.append(session_id, [9] * 40)


async def moves(client: Client, session_id: str, pair: Pair) -> None:
    """Its epoch on the worker is one that the record may come to again."""
    for _ in range(2):
        await client.park(session_id)
        await client.append(session_id, [8])


async def is_parked(client: Client, session_id: str, pair: Pair) -> None:
    await client.append(session_id, [1])
    await client.park(session_id)


FUTURES = [goes_on, says_something_else, is_rewound, begins_anew, moves, is_parked]


async def append(client: Client, session_id: str) -> list[int]:
    assert (await client.append(session_id, [7, 8], expected_history_length=35)).history_length == 37
    return [*HISTORY, 7, 8]


async def generate(client: Client, session_id: str) -> list[int]:
    (*tokens, last) = await client.generate(session_id, 3)
    assert [response.token_id for response in tokens if response.HasField("token_id")] == [135, 136, 137]
    assert last.done.history_length == 38
    return [*HISTORY, 135, 136, 137]


async def rewind(client: Client, session_id: str) -> list[int]:
    assert (await client.rewind(session_id, 30, expected_history_length=35)).history_length == 30
    return HISTORY[:30]


async def park(client: Client, session_id: str) -> list[int]:
    assert (await client.park(session_id)).history_length == 35
    return await append(client, session_id)


async def fork(client: Client, session_id: str) -> list[int]:
    """The first one may find the lane, which is seen to then."""

    async def forked() -> str:
        try:
            return (await client.create(**fork_of(session_id))).session_id
        except NoWorker:
            return ""

    fork_id = await eventually(forked)
    assert (await client.append(fork_id, [7])).history_length == 36
    return await append(client, session_id)


async def fork_earlier(client: Client, session_id: str) -> list[int]:
    fork_id = await client.session(**fork_of(session_id, boundary=30))
    assert (await client.append(fork_id, [7])).history_length == 31
    return await append(client, session_id)


CALLS: list[Callable[[Client, str], Awaitable[list[int]]]] = [append, generate, rewind, park, fork, fork_earlier]


@pytest.mark.parametrize(
    ("files", "future", "call"),
    [
        *(("store", future, append) for future in FUTURES),
        *(("journal", future, append) for future in FUTURES),
        *(("store", goes_on, call) for call in CALLS[1:]),
        *(("store", says_something_else, call) for call in CALLS[1:]),
    ],
    indirect=["files"],
)
async def test_what_came_later_is_none_of_the_history(
    stack: Stack,
    client: Client,
    pair: Pair,
    files: SnapshotFiles | None,
    future: Callable[[Client, str, Pair], Awaitable[None]],
    call: Callable[[Client, str], Awaitable[list[int]]],
) -> None:
    session_id = await client.session()
    await turn(stack, client, session_id, files)
    before = await asyncio.to_thread(data_of, stack.url)
    await future(client, session_id, pair)
    await asyncio.to_thread(set_back, stack.url, before)
    for worker in pair.workers:
        await client.beat(worker, complete=False)
    info = await client.info(session_id)
    assert (info.history_length, info.state) == (35, api.SESSION_STATE_OPEN)
    with pytest.raises(HistoryLengthMismatch) as raised:
        await client.append(session_id, [1], expected_history_length=42)
    assert raised.value.metadata == {"history_length": "35"}
    expected = await call(client, session_id)
    assert (await client.info(session_id)).history_length == len(expected)
    worker = await holder(client, session_id, pair)
    assert worker.lanes[session_id].token_ids == expected
    # A lane of later that is elsewhere is freed, and the session can be had again from what was written.
    orphans = [each.session_id for each in (await client.beat(pair.other(worker))).orphans]
    assert set(orphans) >= {session_id} & set(pair.other(worker).lanes)
    await die(worker)
    await client.append(session_id, [5])
    assert (await holder(client, session_id, pair)).lanes[session_id].token_ids == [*expected, 5]


async def test_an_answer_that_was_going_on_is_not_confirmed(stack: Stack, client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    stream, told = client.generating(session_id, 10), list[int]()

    async def has_journaled(length: int) -> bool:
        return await stack.redis.hget(f"kakeya:{{tiny}}:session:{session_id}", "journal_length") == str(length)

    async def goes_on_to(num_tokens: int) -> None:
        """As many tokens as that are journaled, and the answer stands."""
        worker.pause_in = num_tokens - len(told)
        worker.flowing.set()
        while len(told) < num_tokens:
            told.append((await stream.read()).token_id)
        await eventually(lambda: has_journaled(2 + num_tokens))

    await goes_on_to(4)
    before = await asyncio.to_thread(data_of, stack.url)
    await goes_on_to(5)
    await asyncio.to_thread(set_back, stack.url, before)
    worker.flowing.set()
    with pytest.raises(OperationStopped):
        while await answer(stream.read()):
            pass
    assert (await client.append(session_id, [3], expected_history_length=6)).history_length == 7
    assert worker.lanes[session_id].token_ids == [1, 2, *told[:4], 3]


# A journal that is not what was written


@pytest.mark.parametrize("damage", ["overwritten", "cut short", "evicted"])
@pytest.mark.parametrize("files", ["store", "journal"], indirect=True)
async def test_a_damaged_journal_is_no_history(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles | None, damage: str
) -> None:
    session_id = await client.session()
    await turn(stack, client, session_id, files)
    await turn(stack, client, session_id, files)
    await client.append(session_id, [5, 6, 7])
    key = f"kakeya:{{tiny}}:journal:{session_id}"
    match damage:
        case "overwritten":
            await stack.redis.setrange(key, await stack.redis.strlen(key) - 8, "\x01\x00\x00\x00")
        case "cut short":
            await stack.redis.set(key, "1234")
        case "evicted":
            await stack.redis.delete(key)
    await die(await holder(client, session_id, pair))
    for _ in range(2):
        with pytest.raises(WorkerLost):
            await client.append(session_id, [8])
    assert not any(session_id in worker.lanes for worker in pair.workers)


@pytest.mark.parametrize("files", ["store"], indirect=True)
async def test_snapshots_that_hold_all_make_up_for_a_damaged_journal(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    session_id = await client.session()
    await turn(stack, client, session_id, files)
    await stack.redis.set(f"kakeya:{{tiny}}:journal:{session_id}", "1234")
    await die(await holder(client, session_id, pair))
    await client.append(session_id, [8])
    assert (await holder(client, session_id, pair)).lanes[session_id].token_ids == [*HISTORY, 8]


@pytest.mark.parametrize("files", ["store"], indirect=True)
async def test_a_session_whose_journal_was_damaged_is_safe_again_after_its_next_turns(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    session_id = await client.session()
    await turn(stack, client, session_id, files)
    await stack.redis.delete(f"kakeya:{{tiny}}:journal:{session_id}")
    await turn(stack, client, session_id, files)
    worker = await holder(client, session_id, pair)
    tokens = list(worker.lanes[session_id].token_ids)
    await die(worker)
    await client.append(session_id, [8])
    assert (await holder(client, session_id, pair)).lanes[session_id].token_ids == [*tokens, 8]


@pytest.mark.parametrize("files", ["store"], indirect=True)
async def test_damage_that_is_trimmed_away_is_none(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    """What the journal still has is sound, and a snapshot holds what was before it."""
    session_id = await client.session()
    await turn(stack, client, session_id, files)
    await turn(stack, client, session_id, files)
    await stack.redis.setrange(f"kakeya:{{tiny}}:journal:{session_id}", 0, b"\x07")
    await turn(stack, client, session_id, files)
    tokens = list((await holder(client, session_id, pair)).lanes[session_id].token_ids)
    record = await stack.redis.hgetall(f"kakeya:{{tiny}}:session:{session_id}")
    assert record["journal_start"] == "70"
    assert (await client.rewind(session_id, 100)).history_length == 100
    assert (await holder(client, session_id, pair)).lanes[session_id].token_ids == tokens[:100]


@pytest.mark.parametrize("files", ["journal"], indirect=True)
@pytest.mark.parametrize(("num_refusals", "is_lost"), [(1, False), (2, True)])
async def test_a_record_that_no_lane_agrees_with_is_lost_and_not_resumed_for_ever(
    stack: Stack, client: Client, pair: Pair, num_refusals: int, is_lost: bool
) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    await client.park(session_id)
    refusals: list[BaseException] = [HistoryLengthMismatch("another history") for _ in range(num_refusals)]
    for worker in pair.workers:
        worker.failures["Append"] = refusals
    if is_lost:
        with pytest.raises(WorkerLost, match="damaged or gone"):
            await client.append(session_id, [3])
        with pytest.raises(WorkerLost):
            await client.info(session_id)
    else:
        await client.append(session_id, [3])
        assert (await holder(client, session_id, pair)).lanes[session_id].token_ids == [1, 2, 3]


@pytest.mark.parametrize("files", ["store"], indirect=True)
async def test_a_fork_of_a_snapshot_that_is_another_sessions_is_none(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    session_id = await client.session()
    await turn(stack, client, session_id, files)
    await turn(stack, client, session_id, files)
    for name, (sink, window, refuses, start, tokens) in files.contents.items():
        files.contents[name] = (sink, window, refuses, start, [9 for _ in tokens])
    with pytest.raises(BoundaryNotReachable):
        await client.session(**fork_of(session_id, boundary=40))


async def test_a_fork_of_a_damaged_journal_is_none(stack: Stack, client: Client) -> None:
    await stack.worker(client)
    session_id = await client.session()
    await client.append(session_id, range(1, 8))
    await client.append(session_id, [8, 9])
    await stack.redis.setrange(f"kakeya:{{tiny}}:journal:{session_id}", 32, b"\x07")
    with pytest.raises(BoundaryNotReachable):
        await client.session(**fork_of(session_id, boundary=8))


class ForgettingWorker(FakeWorker):
    """A journal is evicted while it restores a session."""

    stack: Stack

    async def OpenSession(
        self, request: worker_api.OpenSessionRequest, context: object
    ) -> worker_api.OpenSessionResponse:
        await self.stack.redis.delete(f"kakeya:{{tiny}}:journal:{request.session_id}")
        return await super().OpenSession(request, context)


async def test_a_journal_that_is_evicted_while_it_is_needed(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client, "worker-a")
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    await die(worker)
    async with ForgettingWorker("worker-b") as other:
        other.stack = stack
        await client.join(other)
        with pytest.raises(WorkerLost):
            await client.append(session_id, [3])


async def test_lanes_of_older_workers_are_held_against_lengths_only(
    client: Client, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lane, "digests", False)
    session_id = await client.session()
    worker.failures["Append"] = [StaleEpoch("late")]
    await client.append(session_id, [1, 2])
    worker.failures["Generate"] = [StaleEpoch("late")]
    await client.generate(session_id, 2)
    assert worker.calls["OpenSession"] == 1
    assert worker.lanes[session_id].token_ids == [1, 2, 102, 103]


async def test_a_lane_with_other_tokens_goes_nowhere(stack: Stack, client: Client) -> None:
    worker, other = [await stack.worker(client, name) for name in ("worker-a", "worker-b")]
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    holds, takes = (worker, other) if session_id in worker.lanes else (other, worker)
    holds.lanes[session_id].token_ids[0] = 9
    holds.failures["Append"] = [Draining("it shuts down")]
    await client.append(session_id, [3])
    assert takes.lanes[session_id].token_ids == [1, 2, 3]


@pytest.mark.parametrize("dies", [False, True])
async def test_a_session_that_is_gone_when_its_journal_is_read(
    stack: Stack, client: Client, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])

    async def gone(*_: object) -> None:
        return None

    monkeypatch.setattr(JournalStore, "past", gone)
    if dies:
        await die(worker)
        await stack.worker(client, "worker-b")
    else:
        worker.failures["Append"] = [StaleEpoch("late")]
    with pytest.raises(OperationStopped):
        await client.append(session_id, [3])


def test_what_a_lane_and_a_journal_make() -> None:
    digest = extended_digest(EMPTY_HISTORY, range(1, 8))
    whole = Past(replace(RECORD, journal_length=7), 7, pack(range(1, 8)), digest)
    lane = LaneState(history_length=3, history_digest=extended_digest(EMPTY_HISTORY, [1, 2, 3]))
    unknown, foreign = LaneState(history_length=3), LaneState(history_length=3, history_digest=1)
    assert [whole.continues(each) for each in (lane, unknown, foreign)] == [True, True, False]
    assert not whole.is_damaged
    for journaled in (pack([1, 2, 3, 4, 5, 6, 8]), pack(range(1, 7)), b""):
        damaged = replace(whole, journaled=journaled)
        assert damaged.is_damaged
        assert not any(damaged.continues(each) for each in (lane, unknown, foreign))
    # Of an older router's session nothing is known, and of one that is not needed nothing has to be.
    assert replace(whole, journaled=pack([9] * 7), digest=None).continues(lane)
    at_end = LaneState(history_length=7, history_digest=digest)
    assert replace(whole, journaled=b"").continues(at_end)
