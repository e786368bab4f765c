"""Sessions that branch off from what another one was: from snapshots and journal, without its lane."""

import asyncio
from typing import Any

import pytest

from kakeya_router.sessions import opening, past_lanes
from kakeya_router.store.session_record import Claim, SessionId, SessionRecord
from kakeya_router.store.sessions.creation_store import CreationStore
from kakeya_router.store.sessions.journal_store import JournalStore
from kakeya_router.store.sessions.session_store import SessionStore, pack
from kakeya_shared.errors.tree import (
    BoundaryNotReachable,
    Draining,
    EmptyHistory,
    HistoryFull,
    InvalidField,
    InvariantViolated,
    NoCapacity,
    NoWorker,
    QuotaExceeded,
    SessionClosed,
    SessionNotFound,
    SnapshotStoreUnavailable,
    StoreUnavailable,
    WorkerLost,
)
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import BYTES_PER_TOKEN, EOS, LANE_BYTES, SINK, WINDOW, FakeWorker, SnapshotFiles
from tests.unit.router.keyed import keyed_on
from tests.unit.router.lanes.test_queue import QUEUE, stand, waiting
from tests.unit.router.lapses import Waits, be_lost, die
from tests.unit.router.operations.test_recovery import Pair, expected, ledgers, nothing_stored, of_state
from tests.unit.router.session_stores import SessionStores
from tests.unit.router.sessions.test_forks import SESSION, fork_of
from tests.unit.router.stack import FORGETFUL, Client, Stack, answer, eventually, has_snapshot

TURN = 15


@pytest.fixture
def files() -> SnapshotFiles:
    return SnapshotFiles()


@pytest.fixture
async def pair(stack: Stack, client: Client, files: SnapshotFiles) -> Pair:
    return Pair(*[await stack.worker(client, name, num_lanes=8, files=files) for name in ("worker-a", "worker-b")])


async def conversation(stack: Stack, client: Client, num_turns: int = 6, **fields: Any) -> str:
    """A session of turns of 15 tokens, each of which is in a snapshot."""
    session_id = await client.session(**fields)
    for turn in range(num_turns):
        await client.append(session_id, range(turn, turn + 10))
        await client.generate(session_id, 5)
        await eventually(lambda: has_snapshot(stack, session_id, TURN * (turn + 1)))  # noqa: B023  # awaited at once
    return session_id


def history(num_turns: int) -> list[int]:
    """Of such a conversation."""
    return [
        token_id
        for turn in range(num_turns)
        for token_id in (*range(turn, turn + 10), *expected(TURN * turn + 10, TURN * turn + 15))
    ]


async def record_of(stack: Stack, session_id: str) -> dict[str, str]:
    """But for what a heartbeat says whenever it comes: which number its lane has."""
    record: dict[str, str] = await stack.redis.hgetall(SESSION.format(session_id))
    return {name: value for name, value in record.items() if name != "lane_place"}


async def journal_of(stack: Stack, session_id: str) -> bytes:
    packed: bytes = await stack.redis.execute_command("GET", f"kakeya:{{tiny}}:journal:{session_id}", NEVER_DECODE=True)
    return packed or b""


async def trimmed(stack: Stack, session_id: str, start: int) -> None:
    """The journal begins there."""
    before = int((await record_of(stack, session_id))["journal_start"])
    packed = (await journal_of(stack, session_id))[4 * (start - before) :]
    await stack.redis.set(f"kakeya:{{tiny}}:journal:{session_id}", packed)
    await stack.redis.hset(SESSION.format(session_id), "journal_start", start)


async def only(stack: Stack, client: Client, *session_ids: str) -> None:
    """Nothing is left of others in Redis and in the ledgers."""

    async def is_so() -> bool:
        left = {key.rsplit(":", 1)[-1] for key in await stack.session_keys() if ":session:" in key}
        counts = [(reserved, number) for reserved, _, number in (await ledgers(client)).values()]
        totals = tuple(map(sum, zip(*counts, strict=True)))
        return (left, totals) == (set(session_ids), (len(session_ids) * LANE_BYTES, len(session_ids)))

    await eventually(is_so)


async def appended(worker: FakeWorker) -> bool:
    """An append has come to the worker and waits."""
    return any(lane.busy for lane in worker.lanes.values())


# What boundaries there are


async def test_an_info_lists_the_ends_of_the_last_four_turns(stack: Stack, client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    assert not (await client.info(session_id)).boundaries
    await client.append(session_id, [1])
    lengths = [1]
    for _ in range(5):
        (*_, last) = await client.generate(session_id, 2)
        lengths.append(last.done.history_length)
        assert (await client.info(session_id)).boundaries == lengths[1:][-4:]
    await client.append(session_id, [1])
    assert (await client.info(session_id)).boundaries == lengths[-4:]
    await stack.redis.hset(SESSION.format(session_id), "boundaries", "9,7,9,13")
    assert (await client.info(session_id)).boundaries == [7, 9]


# Forks


@pytest.mark.parametrize("turn", [3, 4, 5, 6])
async def test_a_fork_at_one_of_the_last_four_turns(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles, turn: int
) -> None:
    source = await conversation(stack, client)
    assert (await client.info(source)).boundaries == [45, 60, 75, 90]
    before = await record_of(stack, source)
    created = await client.create(client_label="mine", **fork_of(source, boundary=TURN * turn))
    worker = pair.of(created.session_id)
    assert worker.lanes[created.session_id].token_ids == history(turn)
    kv_live_bytes = (SINK + WINDOW) * BYTES_PER_TOKEN
    assert (created.history_length, created.kv_live_bytes) == (TURN * turn, kv_live_bytes)
    info = await client.info(created.session_id)
    assert (info.history_length, info.kv_live_bytes, info.epoch) == (TURN * turn, kv_live_bytes, 1)
    assert [(part.start, part.end) for part in info.retained] == [(0, SINK), (TURN * turn - WINDOW, TURN * turn)]
    ledger = (await ledgers(client))[worker.worker_id]
    num_sessions = 2 if worker is pair.of(source) else 1
    assert ledger == (num_sessions * LANE_BYTES, num_sessions * kv_live_bytes, num_sessions)
    after = await record_of(stack, source)
    assert after.pop("idle_since_ms") >= before.pop("idle_since_ms")
    assert after == before
    assert (await client.append(created.session_id, [1], expected_history_length=TURN * turn)).history_length


async def test_a_fork_takes_any_worker_that_reads_the_snapshots(
    stack: Stack, client: Client, files: SnapshotFiles
) -> None:
    await stack.worker(client, "worker-a", num_lanes=1, files=files)
    source = await conversation(stack, client)
    await stack.worker(client, "worker-b", files=SnapshotFiles("another store"))
    await stack.worker(client, "worker-c")
    await stack.worker(client, "worker-d", files=files, fingerprint="other")
    await stack.worker(client, "worker-e", files=files, pool="other")
    with pytest.raises(NoCapacity):
        await client.create(**fork_of(source, boundary=60))
    worker = await stack.worker(client, "worker-f", num_lanes=1, files=files)
    fork = await client.session(**fork_of(source, boundary=60))
    assert worker.lanes[fork].token_ids == history(4)
    with pytest.raises(NoCapacity):
        await client.create(**fork_of(source, boundary=60))


async def test_what_is_in_the_journal_needs_no_snapshot(stack: Stack, client: Client) -> None:
    await stack.worker(client, "worker-a", num_lanes=1)
    source = await client.session()
    await client.append(source, range(40))
    worker = await stack.worker(client, "worker-b", num_lanes=3)
    for boundary in (1, 7, 39):
        fork = await client.session(**fork_of(source, boundary=boundary))
        assert worker.lanes[fork].token_ids == list(range(boundary))
        record = await record_of(stack, fork)
        assert (record["journal_start"], record["journal_length"]) == ("0", str(boundary))
        assert await journal_of(stack, fork) == pack(range(boundary))


async def test_what_a_snapshot_lacks_is_prefilled_from_the_journal(
    stack: Stack, client: Client, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await conversation(stack, client)
    monkeypatch.setattr(past_lanes, "LONGEST_APPEND_TOKENS", 4)
    num_appends = sum(worker.calls["Append"] for worker in pair.workers)
    fork = await client.session(**fork_of(source, boundary=86))
    assert pair.of(fork).lanes[fork].token_ids == history(6)[:86]
    assert sum(worker.calls["Append"] for worker in pair.workers) == num_appends + 3


async def test_a_fork_has_its_sources_options(stack: Stack, client: Client, pair: Pair) -> None:
    options: dict[str, Any] = {
        "sink": 2,
        "window": 9,
        "on_overflow": api.OVERFLOW_POLICY_REFUSE,
        "eos_token_ids": [EOS],
    }
    source = await client.session(ttl_seconds=50, **options)
    await client.append(source, range(9))
    for fields in ({}, options | {"pin": 2, "eos_token_ids": [8], "ttl_seconds": 60}):
        fork = await client.session(**fields, **fork_of(source, boundary=5))
        record = await record_of(stack, fork)
        assert (record["sink"], record["window"], record["on_overflow"]) == ("2", "9", "refuse")
        assert (record["eos"], record["ttl_ms"]) == (("8", "60000") if fields else (str(EOS), "1800000"))
        assert pair.of(fork).lanes[fork].room == 6
    with pytest.raises(InvalidField):
        await client.create(window=8, **fork_of(source, boundary=5))


async def test_a_fork_of_a_parked_session_leaves_that_parked(stack: Stack, client: Client, pair: Pair) -> None:
    source = await conversation(stack, client)
    await be_lost(pair.of(source))
    await eventually(lambda: _is_parked(stack, source))
    expires_at = await stack.redis.zscore("kakeya:{tiny}:expiry", source)
    for turn in (3, 4, 5):
        fork = await client.session(**fork_of(source, boundary=TURN * turn))
        assert pair.of(fork).lanes[fork].token_ids == history(turn)
    assert (await client.info(source)).state == api.SESSION_STATE_PARKED
    assert await stack.redis.zscore("kakeya:{tiny}:expiry", source) == expires_at
    assert not await stack.redis.zscore("kakeya:{tiny}:idle", source)


async def _is_parked(stack: Stack, session_id: str) -> bool:
    return (await record_of(stack, session_id))["state"] == "parked"


async def test_a_fork_of_a_busy_session_waits_for_nothing(stack: Stack, client: Client, pair: Pair) -> None:
    source = await conversation(stack, client)
    worker = pair.of(source)
    worker.flowing.clear()
    appending = asyncio.create_task(client.append(source, [1]))
    await eventually(lambda: appended(worker))
    pair.other(worker).num_lanes = 8
    await stack.redis.hset(f"kakeya:{{tiny}}:worker:{worker.worker_id}", "reserved_bytes", 8 * LANE_BYTES)
    for turn in (3, 6):  # where it was when the append began, too
        fork = await client.session(**fork_of(source, boundary=TURN * turn))
        assert pair.other(worker).lanes[fork].token_ids == history(turn)
    assert not await stack.redis.zscore("kakeya:{tiny}:idle", source)
    worker.flowing.set()
    assert (await appending).history_length == 91


async def test_many_forks_do_not_disturb_each_other(stack: Stack, files: SnapshotFiles) -> None:
    client = await stack.router(worker_lease_seconds=60, operation_lease_seconds=60)  # nobody dies
    pair = Pair(*[await stack.worker(client, name, num_lanes=30, files=files) for name in ("worker-a", "worker-b")])
    source = await conversation(stack, client)
    boundaries = [45, 60, *range(75, 90)] * 3

    async def forked(boundary: int) -> str:
        fork = await client.session(**fork_of(source, boundary=boundary))
        await client.append(fork, [boundary])
        await client.generate(fork, 2)
        return fork

    forks = await asyncio.gather(*map(forked, boundaries))
    for boundary, fork in zip(boundaries, forks, strict=True):
        own = [boundary, *expected(boundary + 1, boundary + 3)]
        assert pair.of(fork).lanes[fork].token_ids == history(6)[:boundary] + own
    await client.close(source)
    for fork in forks:
        await client.close(fork)
    await eventually(lambda: nothing_stored(stack))
    await eventually(lambda: _no_files(files))


async def _no_files(files: SnapshotFiles) -> bool:
    return not files.contents


# What becomes of the fork


@pytest.mark.parametrize("boundary", [45, 50])
async def test_a_fork_survives_its_worker_and_its_source(
    stack: Stack, client: Client, pair: Pair, boundary: int
) -> None:
    """All of the history is journaled, so the fork's is, whatever of it came from snapshots."""
    source = await client.session()
    await client.append(source, range(40))
    await client.generate(source, 5)
    await eventually(lambda: has_snapshot(stack, source, 45))
    await client.append(source, range(10))
    fork = await client.session(**fork_of(source, boundary=boundary))
    await client.close(source)
    worker = pair.of(fork)
    token_ids = list(worker.lanes[fork].token_ids)
    await die(worker)
    await client.append(fork, [1])
    assert pair.of(fork).lanes[fork].token_ids == [*token_ids, 1]
    assert len(token_ids) == boundary


async def test_a_fork_without_all_its_history_writes_a_snapshot_of_its_own(
    stack: Stack, client: Client, pair: Pair
) -> None:
    source = await conversation(stack, client)
    fork = await client.session(**fork_of(source, boundary=60))
    record = await record_of(stack, fork)
    assert (record["journal_start"], record["journal_length"]) == ("60", "60")
    assert await journal_of(stack, fork) == b""
    assert not record["snapshots"]
    await client.close(source)
    await client.generate(fork, 5)
    await eventually(lambda: has_snapshot(stack, fork, 65))
    await die(pair.of(fork))
    await client.append(fork, [1])
    assert pair.of(fork).lanes[fork].token_ids == [*history(4), *expected(60, 65), 1]


# What cannot be reached


async def test_what_is_nowhere_cannot_be_reached(stack: Stack, client: Client, pair: Pair) -> None:
    source = await conversation(stack, client)
    await trimmed(stack, source, 88)
    before = await record_of(stack, source)
    for boundary in (1, 29, 44, 46, 87):
        with pytest.raises(BoundaryNotReachable) as raised:
            await client.create(request_id="once", **fork_of(source, boundary=boundary))
        assert raised.value.metadata == {"reachable": "45,60,75,90"}
    assert await record_of(stack, source) == before
    await only(stack, client, source)
    with pytest.raises(EmptyHistory):
        await client.create(**fork_of(source, boundary=0))
    assert (await client.create(request_id="once", **fork_of(source, boundary=45))).history_length == 45


async def test_without_a_store_only_what_is_journaled_can_be_reached(stack: Stack) -> None:
    client = await stack.router(**FORGETFUL)
    worker = await stack.worker(client)
    source = await client.session()
    for _ in range(3):
        await client.append(source, [1, 2])
    for boundary in (3, 5):
        with pytest.raises(BoundaryNotReachable) as raised:
            await client.create(**fork_of(source, boundary=boundary))
        assert raised.value.metadata == {"reachable": "6"}
    worker.incarnation += "-reborn"
    await client.join(worker)
    with pytest.raises(WorkerLost):
        await client.create(**fork_of(source, boundary=5))


async def test_a_failed_source(stack: Stack, client: Client, worker: FakeWorker) -> None:
    source = await client.session()
    await client.append(source, range(9))
    worker.failures["Append"] = [InvariantViolated("slots", metadata={"invariant": "inv1"})]
    with pytest.raises(InvariantViolated):
        await client.append(source, [1])
    with pytest.raises(InvariantViolated):
        await client.create(**fork_of(source, boundary=5))


async def test_a_damaged_snapshot_costs_a_longer_prefill(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    source = await conversation(stack, client, num_turns=1)
    await client.append(source, range(10))
    del files.contents[next(name for name in files.contents if name.endswith("-15.safetensors"))]
    fork = await client.session(**fork_of(source, boundary=20))
    assert pair.of(fork).lanes[fork].token_ids == [*history(1), *range(5)]
    longer = await conversation(stack, client)
    del files.contents[next(name for name in files.contents if longer in name and name.endswith("-90.safetensors"))]
    await client.append(longer, [1, 2, 3])
    fork = await client.session(**fork_of(longer, boundary=91))
    assert pair.of(fork).lanes[fork].token_ids == [*history(6), 1]


async def test_where_all_snapshots_are_damaged_the_boundary_cannot_be_reached(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    source = await conversation(stack, client)
    files.contents.clear()
    for boundary in (45, 80):
        with pytest.raises(BoundaryNotReachable):
            await client.create(request_id="once", **fork_of(source, boundary=boundary))
        await only(stack, client, source)
    assert not any(fork != source for worker in pair.workers for fork in worker.lanes)
    assert (await client.create(request_id="once", **fork_of(source, boundary=90))).history_length == 90


async def test_where_snapshots_cannot_be_read_now_the_boundary_can_be_reached_later(
    stack: Stack, client: Client, pair: Pair
) -> None:
    source = await conversation(stack, client)
    for worker in pair.workers:
        worker.failures["OpenSession"] = [SnapshotStoreUnavailable("it does not answer")] * 1000
    with pytest.raises(NoWorker):
        await client.create(**fork_of(source, boundary=45))
    await only(stack, client, source)
    for worker in pair.workers:
        worker.failures.clear()
    assert (await client.create(**fork_of(source, boundary=45))).history_length == 45


@pytest.mark.parametrize(("num_rewinds", "is_there"), [(0, True), (1, True), (0, False)])
async def test_snapshots_that_are_replaced_before_they_are_read(
    stack: Stack,
    client: Client,
    pair: Pair,
    files: SnapshotFiles,
    monkeypatch: pytest.MonkeyPatch,
    num_rewinds: int,
    *,
    is_there: bool,
) -> None:
    """The new ones are read, of what the history is by then."""
    source = await conversation(stack, client)

    async def past(store: SessionStores, *args: Any) -> Any:
        found = await before(store, *args)
        monkeypatch.setattr(JournalStore, "past", before)
        files.contents.clear()
        if is_there:
            files.contents["another"] = (SINK, WINDOW, False, 0, history(6)[:78])
        change = {"snapshots": '[["another",0,78,1]]', "num_rewinds": num_rewinds}
        await stack.redis.hset(SESSION.format(source), mapping=change)
        return found

    before = JournalStore.past
    monkeypatch.setattr(JournalStore, "past", past)
    if is_there:
        fork = await client.session(**fork_of(source, boundary=80))
        assert pair.of(fork).lanes[fork].token_ids == history(6)[:80]
    else:
        with pytest.raises(BoundaryNotReachable):
            await client.create(**fork_of(source, boundary=80))
        await only(stack, client, source)


async def test_a_snapshot_of_another_length_is_not_gone_on_from(
    stack: Stack, client: Client, pair: Pair, files: SnapshotFiles
) -> None:
    source = await conversation(stack, client)
    name = next(name for name in files.contents if name.endswith("-75.safetensors"))
    del files.contents[name][-1][-1]
    with pytest.raises(NoWorker):
        await client.create(**fork_of(source, boundary=77))
    await only(stack, client, source)
    await eventually(lambda: _lanes_are(pair, source))


async def _lanes_are(pair: Pair, *session_ids: str) -> bool:
    return {session_id for worker in pair.workers for session_id in worker.lanes} == set(session_ids)


async def test_an_append_that_did_not_fit_its_source_fits_no_fork(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    source = await client.session(on_overflow=api.OVERFLOW_POLICY_REFUSE)
    await client.append(source, range(9))
    worker.failures["Append"] = [HistoryFull("does not fit", metadata={"room": "0"})]
    with pytest.raises(BoundaryNotReachable):
        await client.create(**fork_of(source, boundary=5))
    await only(stack, client, source)
    await eventually(lambda: _lanes_are(Pair(worker), source))


# Races


async def test_a_source_that_goes_on_meanwhile(
    stack: Stack, client: Client, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the first look at it and the second."""
    source = await client.session()
    await client.append(source, range(9))
    stale = SessionRecord.from_hash(await record_of(stack, source))
    await client.append(source, [1])

    async def get(store: SessionStores, session_id: SessionId) -> Any:
        return stale if session_id == source else await before(store, session_id)

    before = SessionStore.get
    monkeypatch.setattr(SessionStore, "get", get)
    fork = await client.session(**fork_of(source, boundary=9))
    assert worker.lanes[fork].token_ids == list(range(9))


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"journal_start": 9, "snapshots": ""}, BoundaryNotReachable),
        ({"journal_length": 4}, BoundaryNotReachable),
        ({"journal_start": 9, "snapshots": '[["name",0,5,1]]', "snapshot_store": "another"}, NoWorker),
        (None, SessionNotFound),
        ({}, WorkerLost),
    ],
)
async def test_a_source_that_changes_after_it_was_found(
    stack: Stack,
    client: Client,
    worker: FakeWorker,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any] | None,
    kind: type[Exception],
) -> None:
    source = await client.session()
    await client.append(source, range(9))

    async def past(store: SessionStores, record: Any, length: int) -> Any:
        if change is None:
            await stack.redis.delete(SESSION.format(source))
        elif change:
            await stack.redis.hset(SESSION.format(source), mapping=change)
        else:  # lost
            await stack.redis.delete(f"kakeya:{{tiny}}:journal:{source}")
        return await before(store, record, length)

    before = JournalStore.past
    monkeypatch.setattr(JournalStore, "past", past)
    with pytest.raises(kind):
        await client.create(request_id="once", **fork_of(source, boundary=5))
    assert list(worker.lanes) == [source]
    assert not await stack.redis.exists("kakeya:{tiny}:request::once")


async def test_whatever_the_source_does_during_the_prefill_the_fork_has_its_own_tokens(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    source = await client.session()
    await client.append(source, range(9))
    worker.flowing.clear()
    forking = asyncio.create_task(client.session(**fork_of(source, boundary=5)))
    await eventually(lambda: _opens(worker))
    await stack.redis.set(f"kakeya:{{tiny}}:journal:{source}", pack([500] * 9))  # as after a rewind
    worker.flowing.set()
    fork = await forking
    assert worker.lanes[fork].token_ids == list(range(5))
    assert await journal_of(stack, fork) == pack(range(5))


async def _opens(worker: FakeWorker) -> bool:
    return worker.calls["OpenSession"] == 2


# Workers that fail, clients that leave


@pytest.mark.parametrize(
    ("method", "failure"),
    [
        ("Append", RuntimeError("a bug")),
        ("Append", SessionNotFound("no lane")),
        ("Append", SessionClosed("all lanes were given up")),
        ("Append", Draining("shutting down")),
        ("OpenSession", RuntimeError("a bug")),
        ("OpenSession", Draining("shutting down")),
    ],
)
async def test_another_worker_is_tried(
    stack: Stack, client: Client, worker: FakeWorker, method: str, failure: Exception
) -> None:
    source = await client.session()
    await client.append(source, range(9))
    worker.failures[method] = [failure]
    with pytest.raises(NoWorker):
        await client.create(request_id="once", **fork_of(source, boundary=5))
    await only(stack, client, source)
    await eventually(lambda: _lanes_are(Pair(worker), source))
    other = await stack.worker(client, "worker-b")
    worker.failures[method] = [failure] * 2
    other.failures[method] = []
    fork = await client.session(request_id="once", **fork_of(source, boundary=5))
    assert Pair(worker, other).of(fork).lanes[fork].token_ids == list(range(5))
    await only(stack, client, source, fork)


async def test_a_worker_that_dies_in_the_middle_of_the_prefill(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    source = await client.session()
    await client.append(source, range(9))
    other = await stack.worker(client, "worker-b", num_lanes=8)
    other.flowing.clear()
    forking = asyncio.create_task(client.session(**fork_of(source, boundary=5)))
    await eventually(lambda: _waits_in(other, "OpenSession"))
    other.flowing.set()
    await die(other)
    fork = await forking
    assert worker.lanes[fork].token_ids == list(range(5))


async def _waits_in(worker: FakeWorker, method: str) -> bool:
    return worker.calls[method] > 0


async def test_a_client_that_leaves_ends_the_prefill(stack: Stack, client: Client, worker: FakeWorker) -> None:
    source = await client.session()
    await client.append(source, range(9))
    worker.late = [asyncio.Event()]
    call = client.runtime.CreateSession(api.CreateSessionRequest(**fork_of(source, boundary=5)))
    await eventually(lambda: _appends(worker, 2))
    call.cancel()
    await only(stack, client, source)
    await eventually(lambda: _lanes_are(Pair(worker), source))


async def _appends(worker: FakeWorker, times: int) -> bool:
    return worker.calls["Append"] == times


async def test_a_long_prefill_keeps_its_lane(
    stack: Stack, client: Client, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def renew(store: SessionStores, record: SessionRecord, claim: Claim) -> Any:
        monkeypatch.setattr(CreationStore, "renew_opening", before)
        raise StoreUnavailable("for once")

    before = CreationStore.renew_opening
    monkeypatch.setattr(CreationStore, "renew_opening", renew)
    monkeypatch.setattr(opening, "RENEW_SECONDS", 0.02)
    source = await client.session()
    await client.append(source, range(9))
    worker.late = [event := asyncio.Event()]
    forking = asyncio.create_task(client.session(**fork_of(source, boundary=5)))
    await eventually(lambda: _appends(worker, 2))
    (key,) = [key for key in await stack.keys("kakeya:{tiny}:op:*") if source not in key]
    fork = key.removeprefix("kakeya:{tiny}:op:")
    # As if almost all of it were over: only who renews it keeps it.
    await stack.redis.hset(key, "lease_until_ms", 1)
    await stack.redis.zadd("kakeya:{tiny}:expiry", {fork: 9e15})

    async def renewed() -> bool:
        lease, expiry = (
            await stack.redis.hget(key, "lease_until_ms"),
            await stack.redis.zscore("kakeya:{tiny}:expiry", fork),
        )
        return int(lease) > 1 and abs(expiry - int(lease)) < 10_000

    await eventually(renewed)
    event.set()
    assert await forking == fork
    assert worker.lanes[fork].token_ids == list(range(5))


async def test_a_fork_whose_lane_is_taken_from_it_ends(
    stack: Stack, client: Client, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "RENEW_SECONDS", 0.02)
    source = await client.session()
    await client.append(source, range(9))
    worker.late = [asyncio.Event()]
    forking = asyncio.create_task(client.session(**fork_of(source, boundary=5)))
    await eventually(lambda: _appends(worker, 2))
    (key,) = [key for key in await stack.keys("kakeya:{tiny}:op:*") if source not in key]
    await stack.redis.hset(key, "claim", "of the reaper")
    with pytest.raises(NoWorker):
        await forking
    await only(stack, client, source)
    assert list(worker.lanes) == [source]


# The queue, quotas and idempotency


async def test_a_fork_waits_for_any_worker_that_fits_and_holds_nobody_up(stack: Stack, files: SnapshotFiles) -> None:
    client = await stack.router(**QUEUE)
    await stack.worker(client, "worker-a", num_lanes=1, files=files)
    source = await conversation(stack, client)
    fork = await waiting(stack, client, **fork_of(source, boundary=60))
    await stack.worker(client, "worker-b", num_lanes=1, files=SnapshotFiles("another store"))
    other = await client.session()
    assert (await client.info(other)).worker == "worker-b"
    assert not fork.done()
    worker = await stack.worker(client, "worker-c", num_lanes=1, files=files)
    assert worker.lanes[await fork].token_ids == history(4)
    await stand(stack, 0)


async def test_a_fork_waits_on_when_its_sources_worker_is_gone(stack: Stack, files: SnapshotFiles) -> None:
    client = await stack.router(**QUEUE)
    first = await stack.worker(client, "worker-a", num_lanes=1, files=files)
    source = await conversation(stack, client)
    fork = await waiting(stack, client, **fork_of(source, boundary=60))
    await be_lost(first)
    await eventually(lambda: of_state(client, source, api.SESSION_STATE_PARKED))
    worker = await stack.worker(client, "worker-c", num_lanes=1, files=files)
    assert worker.lanes[await fork].token_ids == history(4)


async def test_a_fork_that_waits_for_a_boundary_that_is_its_sources_end_by_then(
    stack: Stack, client: Client, files: SnapshotFiles
) -> None:
    """As after a rewind: it goes by the history all the same, since any worker may call it."""
    client = await stack.router(**QUEUE)
    await stack.worker(client, "worker-a", num_lanes=1)
    source = await client.session()
    await client.append(source, range(9))
    fork = await waiting(stack, client, **fork_of(source, boundary=5))
    await stack.redis.hset(SESSION.format(source), mapping={"journal_length": 5, "history_length": 5})
    worker = await stack.worker(client, "worker-b", num_lanes=1)
    assert worker.lanes[await fork].token_ids == list(range(5))


async def test_nobody_has_what_a_fork_needs(stack: Stack, files: SnapshotFiles, waits: Waits) -> None:
    client = await stack.router(**QUEUE)
    worker = await stack.worker(client, "worker-a", num_lanes=1, files=files)
    source = await conversation(stack, client)
    fork = await waiting(stack, client, **fork_of(source, boundary=60))
    await be_lost(worker)
    await eventually(lambda: of_state(client, source, api.SESSION_STATE_PARKED))
    waits.end()
    with pytest.raises(NoWorker):
        await fork
    await stack.worker(client, "worker-b", num_lanes=1)
    with pytest.raises(NoWorker, match="snapshots"):
        await client.create(**fork_of(source, boundary=60))


async def test_a_session_forked_by_its_own_call(stack: Stack, client: Client, worker: FakeWorker) -> None:
    async def fork(**fields: Any) -> api.CreateSessionResponse:
        response = await answer(client.runtime.ForkSession(api.ForkSessionRequest(**fields)))
        return response.session

    source = await client.session()
    await client.append(source, range(9))
    at_end = await fork(source=api.ForkPoint(session_id=source), client_label="mine", eos_token_ids=[8], ttl_seconds=60)
    record = await record_of(stack, at_end.session_id)
    assert (record["label"], record["eos"], record["ttl_ms"]) == ("mine", "8", "60000")
    assert (at_end.history_length, at_end.reserved_bytes, at_end.model) == (9, LANE_BYTES, "Tiny")
    point = api.ForkPoint(session_id=source, boundary=4)
    first = await fork(source=point, request_id="once")
    assert worker.lanes[first.session_id].token_ids == list(range(4))
    assert (await record_of(stack, first.session_id))["ttl_ms"] == "1800000"
    assert await fork(source=point, request_id="once") == first
    assert await client.create(request_id="once", fork_from=point) == first
    with pytest.raises(InvalidField):
        await fork(source=api.ForkPoint(session_id=source, boundary=5), request_id="once")
    for nothing in ({}, {"source": api.ForkPoint(session_id="tiny.unknown", boundary=3)}):
        with pytest.raises(SessionNotFound):
            await fork(**nothing)


async def test_a_source_is_its_tenants_own(redis_url: str) -> None:
    async with keyed_on(redis_url) as keyed:
        await keyed.worker()
        one, other = await keyed.tenant("one"), await keyed.tenant("other")
        source = await one.session()
        await one.append(source, range(9))
        with pytest.raises(SessionNotFound):
            await other.create(**fork_of(source, boundary=5))
        assert (await one.create(**fork_of(source, boundary=5))).history_length == 5


async def spent(stack: Stack) -> float:
    """What the tenant "one" has used of its tokens lately."""
    return float((await stack.redis.get("kakeya:{tiny}:spent:one") or "0 0").split()[0])


async def test_what_a_fork_prefills_is_charged(redis_url: str, files: SnapshotFiles) -> None:
    async with keyed_on(redis_url, tenant_tokens_per_minute=60) as keyed:
        worker = await keyed.worker(num_lanes=8, files=files)
        client, stack = await keyed.tenant("one"), keyed.stack
        source = await conversation(stack, client, 2)
        await client.append(source, range(20))
        before = await spent(stack)
        assert before < 60
        await client.create(**fork_of(source, boundary=2 * TURN))  # a snapshot has all of it
        assert await spent(stack) == before
        await client.create(**fork_of(source, boundary=2 * TURN + 18))
        assert before - 5 < await spent(stack) - 18 <= before
        with pytest.raises(QuotaExceeded) as raised:  # as an append is now
            await client.create(**fork_of(source, boundary=2 * TURN + 1))
        assert raised.value.metadata["quota"] == "tokens_per_minute"
        assert 0 < (raised.value.retry_after_seconds or 0) < 20
        await client.create(**fork_of(source, boundary=2 * TURN))
        await client.create(**fork_of(source))
        assert len(worker.lanes) == 5
