"""Sessions that their clients can make anew make room for others: which goes first, and what becomes of it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kakeya_router.lanes import idle_lanes
from kakeya_router.lanes.closing import Closing
from kakeya_router.lanes.parking import Parking
from kakeya_router.store.session_record import PoolName, SessionId, SessionRecord
from kakeya_router.store.sessions.session_lists import SessionLists
from kakeya_shared.errors.tree import (
    NoCapacity,
    QueueTimedOut,
    QuotaExceeded,
    SessionNotFound,
    SnapshotStoreUnavailable,
)
from kakeya_shared.rpc import tracing
from tests.unit.router.fake_worker import SnapshotFiles
from tests.unit.router.keyed import keyed_on
from tests.unit.router.lanes.test_parking import expected, is_parked, lean_on_the_store, state
from tests.unit.router.lanes.test_queue import waiting
from tests.unit.router.stack import Client, Stack, eventually, turn_request

PATIENT: dict[str, Any] = {"queue_seconds": 600}
FAST_PREFILL = 1000.0
"""Tokens a second, of which about 50 cost less than parking."""


async def answered(client: Client, num_tokens: int = 3, num_turns: int = 1, **fields: Any) -> str:
    """A disposable session of so many turns."""
    turned = await client.turn(turn_request(create={"disposable": True} | fields, token_ids=range(num_tokens)))
    session_id: str = turned.session.session_id
    for _ in range(num_turns - 1):
        await client.turn(turn_request(session_id, [1]))
    return session_id


async def is_gone(client: Client, session_id: str) -> bool:
    try:
        await client.info(session_id)
    except SessionNotFound:
        return True
    return False


@pytest.fixture
def files() -> SnapshotFiles:
    return SnapshotFiles()


async def test_one_turn_that_is_prefilled_sooner_than_parked_goes_first_and_is_never_written(
    stack: Stack, files: SnapshotFiles
) -> None:
    client = await stack.router(admission="auto", **PATIENT)
    worker = await stack.worker(client, num_lanes=3, files=files, prefill_tokens_per_second=FAST_PREFILL)
    older = await answered(client, num_turns=2)
    single = await answered(client)
    long = await answered(client, num_tokens=60)
    await client.session()
    assert await is_gone(client, single)
    assert {older, long} <= worker.lanes.keys()
    await client.session()
    assert await is_parked(client, older)
    assert not any(single in name for name in files.contents)
    assert (await client.turn(turn_request(older, [7]))).token_ids == expected(13, 17)  # in place of the long one
    assert await is_parked(client, long)


async def test_the_others_are_parked_with_it_the_longest_idle_first(stack: Stack, files: SnapshotFiles) -> None:
    client = await stack.router(admission="evict-idle", close_idle_after_seconds=0.0, **PATIENT)
    await stack.worker(client, num_lanes=2, files=files)
    kept = await client.session()
    await client.append(kept, [1])
    disposable = await answered(client)
    await client.session()
    assert await is_parked(client, kept)
    await client.session()
    assert await is_parked(client, disposable)


async def test_where_nothing_can_be_parked_it_is_closed(stack: Stack) -> None:
    client = await stack.router(admission="queue", **PATIENT)
    await stack.worker(client, num_lanes=2)
    kept, disposable = await client.session(), await answered(client, num_turns=2)
    await client.session()
    assert await is_gone(client, disposable)
    assert await state(client, kept) == "OPEN"


async def test_auto_is_queue_where_there_is_no_store(stack: Stack, files: SnapshotFiles) -> None:
    rules: dict[str, Any] = {"admission": "auto", "close_idle_after_seconds": 0.0}
    hasty, client = await stack.router(**rules, queue_seconds=0.5), await stack.router(**rules, **PATIENT)
    await stack.worker(client, "worker-a", num_lanes=1, fingerprint="aa")
    await stack.worker(client, "worker-b", num_lanes=1, fingerprint="bb", files=files)
    without, with_store = [await client.session(fingerprint=each) for each in ("aa", "bb")]
    for session_id in (without, with_store):
        await client.append(session_id, [1])
    with pytest.raises(QueueTimedOut):
        await hasty.session(fingerprint="aa")
    await client.session(fingerprint="bb")
    assert await state(client, without) == "OPEN"
    assert await is_parked(client, with_store)


async def test_who_does_not_wait_takes_such_a_lane_too(stack: Stack, client: Client) -> None:
    await stack.worker(client, num_lanes=1)
    disposable = await answered(client)
    held = await client.session()
    assert await is_gone(client, disposable)
    with pytest.raises(NoCapacity):
        await client.session()
    assert await state(client, held) == "OPEN"


async def test_a_worker_that_had_no_lane_is_asked_again_once_room_is_made(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client, num_lanes=2)
    disposable = await answered(client)
    worker.lanes["no-session"] = worker.lanes[disposable]  # one that no ledger knows of
    assert (await client.session()) in worker.lanes
    assert await is_gone(client, disposable)


async def test_whose_lane_is_taken_by_another_first_makes_room_once_more(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stack.worker(client, num_lanes=2)
    sessions = [await answered(client), await answered(client)]
    make_room, taken = idle_lanes.IdleLanes.make_room, list[str]()

    async def overtaken(lanes: idle_lanes.IdleLanes, *args: Any, **fields: Any) -> bool:
        is_made = await make_room(lanes, *args, **fields)
        if not taken:
            monkeypatch.undo()
            taken.append(await client.session())
        return is_made

    monkeypatch.setattr(idle_lanes.IdleLanes, "make_room", overtaken)
    assert await state(client, await client.session()) == "OPEN"
    assert [await is_gone(client, session_id) for session_id in sessions] == [True, True]
    assert await state(client, taken[0]) == "OPEN"


@pytest.mark.parametrize("fields", [{"disposable": True}, {"head": True}, {}])
async def test_before_its_answer_it_makes_no_room(stack: Stack, client: Client, fields: dict[str, Any]) -> None:
    await stack.worker(client, num_lanes=1)
    session_id = await client.session(**fields)
    with pytest.raises(NoCapacity):
        await client.session()
    await client.append(session_id, [1, 2])
    with pytest.raises(NoCapacity):
        await client.session()
    await client.generate(session_id, 2)
    if fields:
        await client.session()
    else:
        with pytest.raises(NoCapacity):
            await client.session()
    assert await is_gone(client, session_id) == bool(fields)


async def test_while_it_is_used_it_makes_no_room(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client, num_lanes=1)
    session_id = await answered(client)
    worker.flowing.clear()
    turning = asyncio.create_task(client.turn(turn_request(session_id, [1])))

    async def appends() -> bool:
        return worker.calls["Append"] == 2

    await eventually(appends)
    with pytest.raises(NoCapacity):
        await client.session()
    worker.flowing.set()
    await turning
    await client.session()
    assert await is_gone(client, session_id)


async def test_one_that_cannot_be_parked_after_all_is_closed(stack: Stack, files: SnapshotFiles) -> None:
    client = await stack.router(admission="auto", **PATIENT)
    worker = await stack.worker(client, num_lanes=1, files=files)
    session_id = await client.session(disposable=True)
    await lean_on_the_store(stack, client, session_id)
    await client.append(session_id, [1])
    worker.failures["WriteSnapshot"] = [SnapshotStoreUnavailable("the disk is full")] * 100
    await client.session()
    assert await is_gone(client, session_id)


async def test_one_that_is_used_at_the_last_moment_stays(
    stack: Stack, files: SnapshotFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await stack.router(admission="auto", **PATIENT)
    await stack.worker(client, num_lanes=2, files=files)
    first, second = await answered(client), await answered(client)
    park, used = Parking.park, list[str]()

    async def late(parking: Parking, record: Any, reason: Any, **fields: Any) -> Any:
        if not used:
            used.append(record.session_id)
            await stack.redis.hset(
                f"kakeya:{{tiny}}:op:{record.session_id}", mapping={"claim": "a", "lease_until_ms": 1 << 50}
            )
        return await park(parking, record, reason, **fields)

    monkeypatch.setattr(Parking, "park", late)
    await client.session()
    assert used == [first]
    assert await state(client, first) == "OPEN"
    assert await is_parked(client, second)


async def test_who_has_more_takes_its_own_first_and_of_others_at_last(redis_url: str) -> None:
    async with keyed_on(redis_url, admission="queue", **PATIENT) as keyed:
        rich, poor = await keyed.tenant("rich"), await keyed.tenant("poor")
        await keyed.worker(num_lanes=3)
        poor_session = await answered(poor)
        rich_sessions = [await answered(rich), await answered(rich)]
        for session_id in rich_sessions:
            await rich.session()
            assert await is_gone(rich, session_id)  # although the poor one's has been idle for longer
            assert not await is_gone(poor, poor_session)
        await rich.session()
        assert await is_gone(poor, poor_session)


async def test_many_are_looked_through(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_lanes, "_BATCH", 2)
    client = await stack.router(admission="queue", **PATIENT)
    await stack.worker(client, "worker-a", num_lanes=5, fingerprint="aa")
    await stack.worker(client, "worker-b", num_lanes=1, fingerprint="bb")
    on_a = [await answered(client, fingerprint="aa") for _ in range(5)]
    on_b = await answered(client, fingerprint="bb")
    await client.session(fingerprint="bb")
    assert [await is_gone(client, each) for each in (*on_a, on_b)] == [*[False] * 5, True]


async def test_no_other_is_read_where_the_first_one_goes(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await stack.router(admission="evict-idle", close_idle_after_seconds=0.0, **PATIENT)
    await stack.worker(client, num_lanes=6, prefill_tokens_per_second=FAST_PREFILL)
    sessions = [await answered(client) for _ in range(6)]
    records, num_read = SessionLists.records, list[int]()

    async def counted(store: SessionLists, pool: PoolName, session_ids: Sequence[SessionId]) -> list[SessionRecord]:
        num_read.append(len(session_ids))
        return await records(store, pool, session_ids)

    monkeypatch.setattr(SessionLists, "records", counted)
    await client.session()
    assert await is_gone(client, sessions[0])
    assert sum(num_read) == 1, "nor any of those that are only idle"


async def test_who_come_at_once_take_one_each(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await stack.router(admission="queue", **PATIENT)
    await stack.worker(client, num_lanes=3)
    sessions = [await answered(client) for _ in range(3)]
    close, tried = Closing.close, list[str]()

    async def noted(closing: Closing, record: SessionRecord, *args: Any, **only: Any) -> int | None:
        tried.append(record.session_id)
        return await close(closing, record, *args, **only)

    monkeypatch.setattr(Closing, "close", noted)
    await asyncio.gather(*(client.session() for _ in range(3)))
    assert sorted(tried) == sorted(sessions)


async def test_a_call_says_how_long_it_waited_for_its_lane(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[float]()

    def annotate(**attributes: Any) -> None:
        said.extend(value for name, value in attributes.items() if name == "lane_wait_seconds")

    monkeypatch.setattr(tracing, "annotate", annotate)
    client = await stack.router(admission="queue", **PATIENT)
    await stack.worker(client, num_lanes=1)
    held = await client.session()
    call = await waiting(stack, client)
    await client.close(held)
    await call
    assert len(said) == 2
    assert 0 <= said[0] < said[1]


async def test_the_source_of_a_fork_that_waits_stays(stack: Stack) -> None:
    client = await stack.router(admission="queue", **PATIENT)
    await stack.worker(client, num_lanes=2)
    source = await answered(client)
    other = await answered(client)
    fork = await client.session(fork_from={"session_id": source})
    assert await is_gone(client, other)
    call = await waiting(stack, client, fork_from={"session_id": source})
    assert not await is_gone(client, source)
    await client.close(fork)
    await call


# A tenant at its quota


@pytest.mark.parametrize("admission", ["reject", "queue"])
async def test_a_tenant_at_its_quota_gives_up_its_own_oldest(redis_url: str, admission: str) -> None:
    async with keyed_on(redis_url, admission=admission, tenant_max_sessions=2, **PATIENT) as keyed:
        ours, theirs = await keyed.tenant("ours"), await keyed.tenant("theirs")
        await keyed.worker(num_lanes=8)
        foreign = await answered(theirs)
        first, second = await answered(ours), await answered(ours)
        third = await ours.session()
        assert await is_gone(ours, first)
        await ours.session()
        assert await is_gone(ours, second)
        with pytest.raises(QuotaExceeded):
            await ours.session()
        assert not await is_gone(theirs, foreign)
        assert await state(ours, third) == "OPEN"


async def test_who_would_wait_beyond_its_quota_gives_up_its_own_as_well(redis_url: str) -> None:
    async with keyed_on(redis_url, admission="queue", tenant_max_sessions=1, **PATIENT) as keyed:
        ours, theirs = await keyed.tenant("ours"), await keyed.tenant("theirs")
        await keyed.worker(num_lanes=2)
        own = await answered(ours)
        await theirs.session()
        await ours.session()
        assert await is_gone(ours, own)


async def test_at_a_quota_of_a_key_only_what_the_key_has_goes(redis_url: str) -> None:
    async with keyed_on(redis_url, key_max_sessions=1) as keyed:
        one, other = await keyed.tenant("ours"), await keyed.tenant("ours")
        await keyed.worker(num_lanes=8)
        of_one = await answered(one)
        of_other = await answered(other)
        await other.session()
        assert await is_gone(other, of_other)
        assert not await is_gone(one, of_one)


async def test_a_fork_beyond_the_quota_leaves_its_source_alone(redis_url: str) -> None:
    async with keyed_on(redis_url, tenant_max_sessions=1) as keyed:
        ours = await keyed.tenant("ours")
        await keyed.worker(num_lanes=8)
        source = await answered(ours)
        with pytest.raises(QuotaExceeded):
            await ours.session(fork_from={"session_id": source})
        assert not await is_gone(ours, source)


async def test_tokens_that_are_used_up_come_back_with_no_session(redis_url: str) -> None:
    async with keyed_on(redis_url, tenant_tokens_per_minute=1) as keyed:
        ours = await keyed.tenant("ours")
        await keyed.worker(num_lanes=8)
        session_id = await answered(ours)
        with pytest.raises(QuotaExceeded):
            await ours.session(fork_from={"session_id": session_id, "boundary": 3})
        assert not await is_gone(ours, session_id)
