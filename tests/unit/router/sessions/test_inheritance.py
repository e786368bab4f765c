"""Sessions that have no file of their own yet: what they inherit from the session that they branched off from, and who
keeps it for how long.
"""

import asyncio
from typing import Any

import pytest

from kakeya_router.store.session_record import SessionRecord, State
from kakeya_router.store.sessions.creation_store import CreationStore
from kakeya_router.store.sessions.stored_snapshots import parse
from kakeya_shared.errors.tree import SessionNotFound, WorkerLost
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import registry_pb2
from tests.unit.router.fake_worker import FakeWorker, SnapshotFiles
from tests.unit.router.lapses import be_lost, die
from tests.unit.router.operations.test_recovery import Pair, expected, nothing_stored, of_state
from tests.unit.router.session_stores import SessionStores
from tests.unit.router.sessions.test_boundaries import conversation, history, record_of
from tests.unit.router.sessions.test_forks import SESSION, fork_of
from tests.unit.router.stack import FORGETFUL, Client, Stack, answer, eventually, has_snapshot

HEIRS = "kakeya:{tiny}:heirs"
BOUNDARIES = [60, 83, 90]
"""Of a conversation of six turns; the last is its present end, and 83 is in none of its snapshots."""


@pytest.fixture
def files() -> SnapshotFiles:
    return SnapshotFiles()


@pytest.fixture
async def pair(stack: Stack, client: Client, files: SnapshotFiles) -> Pair:
    return Pair(*[await stack.worker(client, name, num_lanes=60, files=files) for name in ("worker-a", "worker-b")])


async def inherited(stack: Stack, session_id: str) -> list[str]:
    """The names of the files that a session has inherited."""
    return [each.name for each in parse((await record_of(stack, session_id)).get("inherited", ""))]


async def own(stack: Stack, session_id: str) -> list[str]:
    return [each.name for each in parse((await record_of(stack, session_id))["snapshots"])]


async def nothing_left(stack: Stack, files: SnapshotFiles) -> None:
    async def is_so() -> bool:
        return await nothing_stored(stack) and not files.contents

    await eventually(is_so)


async def are_left(files: SnapshotFiles, names: list[str]) -> bool:
    return set(files.contents) == set(names)


async def none_inherited(stack: Stack) -> bool:
    return not await stack.redis.exists(HEIRS)


async def taken(stack: Stack, client: Client, session_id: str, num_turns: int) -> None:
    """Turns, each of which is in a snapshot then."""
    for _ in range(num_turns):
        await client.append(session_id, range(10))
        (*_, last) = await client.generate(session_id, 5)
        await eventually(lambda: has_snapshot(stack, session_id, last.done.history_length))  # noqa: B023  # at once


@pytest.mark.parametrize("of_source", ["stays", "is closed", "goes on"])
@pytest.mark.parametrize("boundary", BOUNDARIES)
async def test_a_fork_whose_worker_dies_before_its_first_turn(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles, boundary: int, of_source: str
) -> None:
    source = await conversation(stack, client)
    fork = await client.session(**fork_of(source, boundary=boundary))
    assert not await own(stack, fork)
    if of_source == "is closed":
        await client.close(source)
    elif of_source == "goes on":
        await taken(stack, client, source, 6)
    worker = pair.of(fork)
    await die(worker)
    (*tokens, last) = await client.generate(fork, 5)
    told = [response.token_id for response in tokens if response.HasField("token_id")]
    assert told == expected(boundary, boundary + 5)
    assert last.done.history_length == boundary + 5
    assert pair.other(worker).lanes[fork].token_ids == history(6)[:boundary] + told
    await client.close(fork)
    if of_source != "is closed":
        await client.close(source)
    await nothing_left(stack, files)


async def test_a_fork_of_a_fork_needs_neither(stack: Stack, client: Client, pair: Pair, files: SnapshotFiles) -> None:
    source = await conversation(stack, client)
    fork = await client.session(**fork_of(source))
    of_fork = await client.session(**fork_of(fork))
    earlier = await client.session(**fork_of(fork, boundary=83))
    assert await inherited(stack, of_fork) == await inherited(stack, fork) == await own(stack, source)
    await client.close(fork)
    await client.close(source)
    assert files.contents
    await die(pair.of(of_fork))
    await client.append(of_fork, [1])
    await client.append(earlier, [1])
    assert pair.of(of_fork).lanes[of_fork].token_ids == [*history(6), 1]
    assert pair.of(earlier).lanes[earlier].token_ids == [*history(6)[:83], 1]
    await client.close(of_fork)
    assert files.contents
    await client.close(earlier)
    await nothing_left(stack, files)


async def test_a_fork_that_has_turns_of_its_own_hands_both_on(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    source = await conversation(stack, client)
    fork = await client.session(**fork_of(source))
    await taken(stack, client, fork, 1)
    of_fork = await client.session(**fork_of(fork))
    assert (await inherited(stack, of_fork))[-1:] == await own(stack, fork)
    tokens = list(pair.of(of_fork).lanes[of_fork].token_ids)
    for session_id in (fork, source):
        await client.close(session_id)
    await die(pair.of(of_fork))
    await client.append(of_fork, [1])
    assert pair.of(of_fork).lanes[of_fork].token_ids == [*tokens, 1]
    await client.close(of_fork)
    await nothing_left(stack, files)


async def test_what_is_inherited_is_kept_until_the_fork_has_its_own(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    """Should the first of these be damaged, nothing is lost."""
    source = await conversation(stack, client)
    fork = await client.session(**fork_of(source))
    await client.close(source)
    await taken(stack, client, fork, 1)
    assert (await inherited(stack, fork))[-1].endswith("-90.safetensors")
    (damaged,) = await own(stack, fork)
    del files.contents[damaged]
    worker = pair.of(fork)
    tokens = list(worker.lanes[fork].token_ids)
    await die(worker)
    await client.append(fork, [1])
    assert pair.of(fork).lanes[fork].token_ids == [*tokens, 1]
    await taken(stack, client, fork, 5)
    assert not await inherited(stack, fork)
    await eventually(lambda: none_inherited(stack))
    names = await own(stack, fork)
    await eventually(lambda: are_left(files, names))


async def test_fifty_forks_of_one_source(stack: Stack, client: Client, pair: Pair, files: SnapshotFiles) -> None:
    source = await conversation(stack, client)
    names = await own(stack, source)
    forks = await asyncio.gather(*(client.session(**fork_of(source)) for _ in range(50)))
    assert await stack.redis.zcard(HEIRS) == 50 * len(names)
    await client.close(source)
    await asyncio.gather(*(client.close(fork) for fork in forks[1:]))
    assert sorted(files.contents) == sorted(names)
    assert await stack.redis.zcard(HEIRS) == len(names)
    await die(pair.of(forks[0]))
    await client.append(forks[0], [1])
    assert pair.of(forks[0]).lanes[forks[0]].token_ids == [*history(6), 1]
    await client.close(forks[0])
    await nothing_left(stack, files)


async def test_a_fork_that_ends_takes_nothing_from_its_source(stack: Stack, client: Client, pair: Pair) -> None:
    source = await conversation(stack, client)
    fork, short = await client.session(**fork_of(source)), await client.session(**fork_of(source))

    async def is_gone() -> bool:
        return not await record_of(stack, short)

    await client.close(fork)
    await stack.redis.zadd("kakeya:{tiny}:expiry", {short: 1})
    await eventually(is_gone)
    await eventually(lambda: none_inherited(stack))
    await die(pair.of(source))
    await client.append(source, [1])
    assert pair.of(source).lanes[source].token_ids == [*history(6), 1]


@pytest.mark.parametrize("change", ["is rewound", "fails"])
async def test_whatever_becomes_of_the_source_the_files_are_the_forks(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles, change: str
) -> None:
    source = await conversation(stack, client)
    fork = await client.session(**fork_of(source))

    async def is_gone() -> bool:
        return not await record_of(stack, source)

    if change == "is rewound":
        await client.rewind(source, 45)
    else:
        await stack.redis.hset(SESSION.format(source), "state", "failed")
        await stack.redis.zadd("kakeya:{tiny}:expiry", {source: 1})
        await eventually(is_gone)
    await die(pair.of(fork))
    await client.append(fork, [1])
    assert pair.of(fork).lanes[fork].token_ids == [*history(6), 1]
    await client.close(fork)
    if change == "is rewound":
        await client.close(source)
    await nothing_left(stack, files)


async def test_a_source_that_is_closed_during_the_prefill(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    source = await conversation(stack, client)
    for worker in pair.workers:
        worker.late = [asyncio.Event()]
    forking = asyncio.create_task(client.session(**fork_of(source, boundary=83)))

    async def prefills() -> bool:
        return any(not worker.late for worker in pair.workers)

    waiting = [worker.late[0] for worker in pair.workers]
    await eventually(prefills)
    await client.close(source)
    for event in waiting:
        event.set()
    fork = await forking
    for worker in pair.workers:
        worker.late.clear()
    await die(pair.of(fork))
    await client.append(fork, [1])
    assert pair.of(fork).lanes[fork].token_ids == [*history(6)[:83], 1]
    await client.close(fork)
    await nothing_left(stack, files)


class ClosingWorker(FakeWorker):
    """Its client closes a source when it has been copied."""

    closing: Client

    async def OpenSession(self, request: Any, context: Any) -> Any:
        opened = await super().OpenSession(request, context)
        if request.HasField("fork_from"):
            await self.closing.close(request.fork_from.session_id)
        return opened


async def test_a_source_that_is_closed_when_its_lane_was_copied_is_not_found(
    stack: Stack, client: Client, files: SnapshotFiles
) -> None:
    async with ClosingWorker(files=files) as worker:
        worker.closing = client
        await client.join(worker)
        source = await conversation(stack, client)
        with pytest.raises(SessionNotFound):
            await client.create(**fork_of(source))
        await nothing_left(stack, files)


async def test_a_source_that_is_closed_before_a_fork_of_it_is_reserved_is_not_found(
    stack: Stack, client: Client, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await conversation(stack, client)

    async def reserve(store: SessionStores, *arguments: Any, **options: Any) -> Any:
        await client.close(source)
        return await before(store, *arguments, **options)

    before = CreationStore.reserve
    monkeypatch.setattr(CreationStore, "reserve", reserve)
    with pytest.raises(SessionNotFound):
        await client.create(**fork_of(source))
    assert await nothing_stored(stack)


async def test_a_fork_is_rewound_to_before_it_began(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    source = await conversation(stack, client)
    fork = await client.session(**fork_of(source))
    await client.close(source)
    await client.rewind(fork, 60)
    await die(pair.of(fork))
    await client.append(fork, [1])
    assert pair.of(fork).lanes[fork].token_ids == [*history(4), 1]
    await client.close(fork)
    await nothing_left(stack, files)


async def test_a_fork_is_parked_without_a_file_of_its_own(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    source = await conversation(stack, client)
    fork = await client.session(**fork_of(source))
    assert (await client.park(fork)).freed_bytes
    assert not await own(stack, fork)
    await client.close(source)
    await client.append(fork, [1])
    assert pair.of(fork).lanes[fork].token_ids == [*history(6), 1]


async def test_a_fork_waits_for_the_only_worker_that_reads_what_it_has(stack: Stack, files: SnapshotFiles) -> None:
    """Each has a store of its own, and it is started again."""
    client = await stack.router(admission="queue", queue_seconds=60)
    worker = await stack.worker(client, files=files)
    source = await conversation(stack, client)
    await stack.worker(client, "worker-b", num_lanes=9, files=SnapshotFiles("another store"))
    forks = [await client.session(**fork_of(source, boundary=boundary)) for boundary in (90, 60)]
    await client.close(source)
    await be_lost(worker)
    appending = [asyncio.create_task(client.append(fork, [1])) for fork in forks]
    for fork in forks:
        await eventually(lambda: of_state(client, fork, api.SESSION_STATE_PARKED))  # noqa: B023  # awaited at once
    again = await stack.worker(client, files=files)
    await asyncio.gather(*appending)
    assert [again.lanes[fork].token_ids for fork in forks] == [[*history(6), 1], [*history(4), 1]]


async def test_a_fork_without_a_store_says_honestly_that_it_is_lost(stack: Stack) -> None:
    client = await stack.router(**FORGETFUL)
    worker = await stack.worker(client)
    source = await client.session()
    for _ in range(3):
        await client.append(source, [1, 2])
    fork = await client.session(**fork_of(source))
    assert not SessionRecord.from_hash(await record_of(stack, fork)).is_recoverable
    await die(worker)
    with pytest.raises(WorkerLost):
        await client.append(fork, [1])
    assert SessionRecord.from_hash(await record_of(stack, fork)).state is State.LOST


# Sessions whose newest files are of no use


async def test_what_comes_after_a_damaged_snapshot_does_not_follow_it(
    stack: Stack, client: Client, files: SnapshotFiles
) -> None:
    """Else the next ones could be read as little as it, and the journal would not reach back to those before."""
    session_id, told = "", list[int]()
    for length in (30, 33, 36, 39, 42):
        if length in (30, 39):  # at first, and after the worker has died
            worker = await stack.worker(client, f"worker-{length}", files=files)
            session_id = session_id or await client.session()
        await client.append(session_id, range(28 if length == 30 else 1))
        await client.generate(session_id, 2)
        await eventually(lambda: has_snapshot(stack, session_id, length))  # noqa: B023  # awaited at once
        told = list(worker.lanes[session_id].token_ids)
        if length == 36:
            (damaged,) = [name for name in files.contents if name.endswith("-36.safetensors")]
            assert files.contents.pop(damaged)[3] == 33  # it follows another one
            await die(worker)
    await die(worker)
    again = await stack.worker(client, files=files)
    await client.append(session_id, [1])
    assert again.lanes[session_id].token_ids == [*told, 1]


# Files that nobody needs


async def test_the_sweep_spares_what_is_inherited(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    async def swept() -> set[str]:
        worker = pair.workers[0]
        request = registry_pb2.SweepSnapshotsRequest(
            pool="tiny", worker_id=worker.worker_id, incarnation=worker.incarnation, names=sorted(files.contents)
        )
        return set((await answer(client.registry.SweepSnapshots(request))).orphans)

    source = await conversation(stack, client)
    fork = await client.session(**fork_of(source, boundary=60))
    names = await inherited(stack, fork)
    before = set(files.contents)
    await client.close(source)
    assert len(names) < len(before)
    await eventually(lambda: are_left(files, names))
    assert await swept() == set()
    # An older router closes the fork, and knows nothing of heirs.
    await stack.redis.delete(SESSION.format(fork))
    assert await swept() == set()
    assert await none_inherited(stack)
    assert await swept() == set(names)
