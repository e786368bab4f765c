"""Leases of operations, which are renewed together: one that is gone, or whose Redis is, ends alone."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from structlog.testing import capture_logs

from kakeya_router.operations import renewals as renewals_module
from kakeya_router.operations.operation import Operation, Running
from kakeya_router.operations.renewals import RENEWED_EACH, Renewals
from kakeya_router.store.outcomes import RenewOperation
from kakeya_router.store.session_record import Claim, PoolName, SessionId, SessionRecord
from kakeya_router.store.sessions.session_changes import Intent
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_shared.process.bulletin import cancelled
from kakeya_shared.process.detached_tasks import DetachedTasks
from tests.unit.router.admission_stores import KEYS, Stores, stores_on, worker_record
from tests.unit.router.session_stores import SessionStores

LEASE_SECONDS = 0.2
NAMES = ("one", "three", "two")
OTHER = PoolName("other")
BUSY = {"renewing operations is put off"}  # where the machine is


@pytest.fixture
async def stores(redis_url: str) -> AsyncIterator[Stores]:
    async with stores_on(redis_url) as stores:
        await stores.workers.join(worker_record(num_lanes=8))
        yield stores


class Watched(SessionStores):
    """Of the stores of a test. It remembers which sessions each round trip was for.

    Attributes:
        failures: what is raised instead of the next ones.
        silent: the pool that never has an answer.
    """

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores.redis)
        self.round_trips: list[list[SessionId]] = []
        self.failures: list[Exception] = []
        self.silent: PoolName | None = None

    async def renew_operations(self, held: Sequence[tuple[SessionRecord, Claim]]) -> list[RenewOperation | Exception]:
        self.round_trips.append(sorted(record.session_id for record, _ in held))
        if held[0][0].pool == self.silent:
            await asyncio.Event().wait()
        if self.failures:
            raise self.failures.pop(0)
        return await super().renew_operations(held)


@dataclass
class Held:
    """Operations that run; renewed from `begin_renewing` on.

    Attributes:
        renewed: those of whom it was said.
    """

    store: Watched
    tasks: DetachedTasks = field(default_factory=DetachedTasks)
    running: Running = field(default_factory=Running)
    renewed: list[Operation] = field(default_factory=list)
    renewing: "asyncio.Task[None] | None" = None

    def begin_renewing(self) -> None:
        renewals = Renewals(self.store, self.running, self.renewed.append, lease_seconds=LEASE_SECONDS)
        self.renewing = asyncio.create_task(renewals.run())

    async def begin(self, record: SessionRecord) -> Operation:
        operation = Operation(record, Intent("generate", {}), self.tasks)
        begun = await self.store.begin_operation(record, operation.claim, Intent("generate", {}))
        operation.record = begun.record
        self.running.add(operation)
        return operation

    async def begin_all(self, stores: Stores) -> list[Operation]:
        return [await self.begin(await stores.opened(name)) for name in NAMES]

    def are_all_renewed(self) -> bool:
        return self.running <= {*self.renewed}


@pytest.fixture
async def held(stores: Stores) -> AsyncIterator[Held]:
    made = Held(Watched(stores))
    yield made
    if made.renewing is not None:
        await cancelled(made.renewing)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def lease(stores: Stores, name: str) -> int:
    hashes = await stores.redis.hashes([KEYS.operation(SessionId(f"p.{name}"))])
    return int(hashes[0]["lease_until_ms"])


async def test_all_of_a_pool_are_one_round_trip(held: Held, stores: Stores) -> None:
    await held.begin_all(stores)
    before = [await lease(stores, name) for name in NAMES]
    await asyncio.sleep(0.01)  # they are told in milliseconds, and renewed in less than one
    held.begin_renewing()
    await until(held.are_all_renewed)
    assert held.store.round_trips[0] == [f"p.{name}" for name in NAMES]
    assert all([await lease(stores, name) > then for name, then in zip(NAMES, before, strict=True)])


async def test_no_round_trip_is_for_more_than_a_batch(
    held: Held, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewals_module, "_BATCH", 2)
    await held.begin_all(stores)
    held.begin_renewing()
    await until(held.are_all_renewed)
    assert {*map(len, held.store.round_trips)} == {1, 2}


async def test_they_are_renewed_again_and_again_and_not_when_they_are_over(held: Held, stores: Stores) -> None:
    first, *others = await held.begin_all(stores)
    held.begin_renewing()
    await until(lambda: held.renewed.count(first) > 2)
    held.running.discard(first)
    await asyncio.sleep(3 * RENEWED_EACH * LEASE_SECONDS)
    held.renewed.clear()
    await until(held.are_all_renewed)
    assert {*held.renewed} == {*others}


async def test_one_that_another_router_has_ends_alone(held: Held, stores: Stores) -> None:
    taken, *others = await held.begin_all(stores)
    await stores.redis.commands([("HSET", KEYS.operation(taken.record.session_id), "claim", "another")])
    held.begin_renewing()
    await until(lambda: taken.call.cancelled and {*others} <= {*held.renewed})
    assert (taken.call.cancelled, [each.call.cancelled for each in others]) == (True, [False, False])
    assert taken not in held.renewed


async def test_one_that_was_over_before_the_answer_is_not_told(
    held: Held, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, *_ = await held.begin_all(stores)
    await stores.redis.commands([("DEL", KEYS.operation(over.record.session_id))])

    async def leaves(asked: Sequence[tuple[SessionRecord, Claim]]) -> list[RenewOperation | Exception]:
        found = await SessionStores.renew_operations(held.store, asked)
        held.running.discard(over)
        return found

    monkeypatch.setattr(held.store, "renew_operations", leaves)  # as where its end comes meanwhile
    held.begin_renewing()
    await until(lambda: bool(held.renewed) and held.are_all_renewed())
    assert not over.call.cancelled


async def test_what_redis_refuses_one_with_is_its_own(held: Held, stores: Stores) -> None:
    broken, *others = await held.begin_all(stores)
    key = KEYS.operation(broken.record.session_id)
    await stores.redis.commands([("DEL", key), ("SET", key, "of another kind")])
    with capture_logs() as logs:
        held.begin_renewing()
        await until(lambda: {*others} <= {*held.renewed} and bool({each["event"] for each in logs} - BUSY))
    assert (broken in held.renewed, broken.call.cancelled) == (False, False)
    assert {(each["event"], each["session_id"]) for each in logs if each["event"] not in BUSY} == {
        ("an operation is not renewed", broken.record.session_id)
    }


@pytest.mark.parametrize(
    ("failure", "said"),
    [(StoreUnavailable("away"), set()), (ValueError("?"), {"renewing operations has failed and goes on"})],
)
async def test_one_failure_is_not_the_last_renewal(
    held: Held, stores: Stores, failure: Exception, said: set[str]
) -> None:
    held.store.failures.append(failure)
    operations = await held.begin_all(stores)
    with capture_logs() as logs:
        held.begin_renewing()
        await until(held.are_all_renewed)
    assert not any(each.call.cancelled for each in operations)
    assert {each["event"] for each in logs} - BUSY == said


async def test_what_is_not_answered_in_time_is_asked_again(held: Held, stores: Stores) -> None:
    """And one silent pool keeps no other from its renewals."""
    held.store.silent = OTHER
    operations = await held.begin_all(stores)
    elsewhere = replace(operations[0].record, session_id=SessionId("other.one"), pool=OTHER)
    away = Operation(elsewhere, Intent("generate", {}), held.tasks)
    held.running.add(away)
    held.begin_renewing()
    await until(lambda: held.store.round_trips.count([away.record.session_id]) > 2 and {*operations} <= {*held.renewed})
    held.running.discard(away)


async def test_a_refusal_of_all_commands_is_no_end(held: Held, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a primary that has become a replica."""
    operations = await held.begin_all(stores)

    async def refused(asked: Sequence[tuple[SessionRecord, Claim]]) -> list[RenewOperation | Exception]:
        held.store.round_trips.append([])
        return [StoreUnavailable("a replica") for _ in asked]

    with capture_logs() as logs, monkeypatch.context() as patch:
        patch.setattr(held.store, "renew_operations", refused)
        held.begin_renewing()
        await until(lambda: [] in held.store.round_trips)
    await until(held.are_all_renewed)
    assert not {each["event"] for each in logs} - BUSY
    assert not any(each.call.cancelled for each in operations)
