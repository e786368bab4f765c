"""A worker's lease by its own clock, and what stands before its calls."""

import asyncio

import pytest

from kakeya_shared.errors.tree import NoWorker, StaleEpoch, StoreUnavailable
from kakeya_worker.joining.lease import Lease, seconds_since_boot
from kakeya_worker.service.verifier_service import VerifierService

APPEND, *OPEN = (f"/kakeya.worker.v1.VerifierService/{name}" for name in ("Append", "GetSlab", "Acknowledge"))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lease(clock: Clock) -> Lease:
    return Lease(clock)


async def test_it_is_counted_from_when_it_was_asked_for(lease: Lease, clock: Clock) -> None:
    with lease.asked_for() as asked_at:
        clock.now += 3
    lease.grant("i", asked_at, 5)
    clock.now = 104.9
    await lease.check()
    clock.now = 105
    with pytest.raises(StaleEpoch):
        await lease.check()
    lease.renew(101)
    await lease.check()
    lease.renew(100.5)  # an answer that comes late takes nothing back
    clock.now = 105.8
    await lease.check()
    lease.lose()
    with pytest.raises(StaleEpoch):
        await lease.check()


async def test_calls_wait_for_the_answer_that_others_may_have_heard(lease: Lease, clock: Clock) -> None:
    with pytest.raises(NoWorker):
        await lease.check()
    with lease.asked_for() as asked_at:
        waiting = asyncio.create_task(lease.check())
        await asyncio.sleep(0)
        assert not waiting.done()
        lease.grant("i", asked_at, 5)
    await waiting


async def test_who_says_no_duration_grants_it_for_good(lease: Lease, clock: Clock) -> None:
    lease.grant("i", 100, 0)
    clock.now += 1e9
    await lease.check()


@pytest.mark.parametrize("was_held", [True, False])
async def test_while_the_store_is_away_it_does_not_age_and_is_not_given(
    lease: Lease, clock: Clock, was_held: bool
) -> None:
    lease.grant("i", 100, 5)
    clock.now = 104 if was_held else 106
    with pytest.raises(StoreUnavailable), lease.asked_for():
        raise StoreUnavailable("Redis is away")
    clock.now += 2
    assert lease.is_held is was_held


async def test_another_incarnation_is_not_this_one(lease: Lease) -> None:
    lease.grant("new", 100, 5)
    for meant in ("", "new"):
        lease.check_incarnation(meant)
    with pytest.raises(StaleEpoch):
        lease.check_incarnation("old")


async def test_beyond_it_no_call_is_let_in_but_what_begins_nothing(lease: Lease, clock: Clock) -> None:
    let_in = VerifierService(lease).let_in
    lease.grant("i", 100, 5)
    assert await let_in(APPEND, ()) == {}
    clock.now += 5
    with pytest.raises(StaleEpoch):
        await let_in(APPEND, ())
    for method in OPEN:
        assert await let_in(method, ()) == {}


def test_the_clock_runs() -> None:
    before = seconds_since_boot()
    assert seconds_since_boot() >= before > 0
