"""Who gets a place, in which order, and what the others are told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kakeya_http_shim.metrics import Metrics
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.routes.admission import Admission
from tests.loop_clock import LoopClock


def admission(policy: Any = "queue", places: int = 1, queue: int = 10, wait_seconds: float = 0.0) -> Admission:
    return Admission(policy, places, queue, wait_seconds, Metrics())


def shown(admission: Admission) -> tuple[int, int]:
    """In flight and waiting, after a check that the gauges say the same."""
    content = admission._metrics.exposition()[0].decode()
    assert f"kakeya_http_in_flight_requests {float(admission.num_in_flight)}\n" in content
    assert f"kakeya_http_waiting_requests {float(admission.num_waiting)}\n" in content
    return admission.num_in_flight, admission.num_waiting


def num_rejected(admission: Admission, reason: str) -> float:
    rejected: float = admission._metrics.rejected_requests.labels(reason)._value.get()
    return rejected


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Visitor:
    """Somebody who takes a place and stays until told to go."""

    def __init__(self, admission: Admission, arrived: Callable[[], None] = lambda: None) -> None:
        self._admission = admission
        self._arrived = arrived
        self.go = asyncio.Event()
        self.has_place = False
        self.task = asyncio.create_task(self._visit())

    async def _visit(self) -> None:
        async with self._admission.place():
            self.has_place = True
            self._arrived()
            await self.go.wait()


@asynccontextmanager
async def visitors(admission: Admission, number: int) -> AsyncIterator[list[Visitor]]:
    crowd = []
    for _ in range(number):
        crowd.append(Visitor(admission))
        await settle()
    yield crowd
    for visitor in crowd:
        visitor.go.set()
    await asyncio.gather(*(visitor.task for visitor in crowd), return_exceptions=True)
    assert shown(admission) == (0, 0)


async def test_places_go_in_the_order_of_arrival() -> None:
    order: list[int] = []
    gate = admission(places=2)
    crowd = [Visitor(gate, lambda index=index: order.append(index)) for index in range(6)]  # type: ignore[misc]
    await settle()
    assert (order, shown(gate)) == ([0, 1], (2, 4))
    for leaving in (1, 0, 2, 3, 4, 5):
        crowd[leaving].go.set()
        await crowd[leaving].task
        await settle()
    assert (order, shown(gate)) == ([0, 1, 2, 3, 4, 5], (0, 0))


async def test_a_place_that_becomes_free_is_not_taken_by_who_comes_in_that_moment() -> None:
    gate = admission()
    async with visitors(gate, 2) as (first, second):
        first.go.set()
        await first.task  # the place is on its way to the second, who has not run yet
        third = Visitor(gate)
        await settle()
        assert (second.has_place, third.has_place, shown(gate)) == (True, False, (1, 1))
        third.task.cancel()
        await settle()


async def test_the_policy_reject_lets_nobody_wait() -> None:
    gate = admission("reject")
    async with visitors(gate, 1):
        with pytest.raises(ApiError, match="1 requests are under way") as refusal:
            async with gate.place():
                pytest.fail("there is no place")
        assert (refusal.value.status, refusal.value.code) == (429, "rate_limit_exceeded")
        assert refusal.value.header_items() == {"retry-after": "1"}
        assert (num_rejected(gate, "busy"), shown(gate)) == (1, (1, 0))


async def test_the_queue_is_bounded() -> None:
    gate = admission(queue=2)
    async with visitors(gate, 3):
        with pytest.raises(ApiError, match="2 requests are waiting already"):
            async with gate.place():
                pytest.fail("there is no place")
        assert (num_rejected(gate, "queue_full"), shown(gate)) == (1, (1, 2))


async def test_nobody_waits_longer_than_allowed(clock: LoopClock) -> None:
    gate = admission(wait_seconds=60)
    async with visitors(gate, 2) as (_, waiting):
        clock.skip(61)
        with pytest.raises(ApiError, match="waited for 60 s"):
            await waiting.task
        assert (num_rejected(gate, "queue_timeout"), shown(gate)) == (1, (1, 0))


async def test_a_place_that_comes_in_time_is_kept(clock: LoopClock) -> None:
    gate = admission(wait_seconds=60)
    async with visitors(gate, 2) as (first, second):
        first.go.set()
        await first.task
        await settle()
        clock.skip(100)
        await settle()
        assert second.has_place


async def test_when_another_try_is_worth_it_follows_from_how_long_requests_take() -> None:
    gate = admission(queue=1)
    for held_seconds, expected in ((1.0, "2"), (20.0, "40"), (1e6, "60")):
        gate._mean_seconds = held_seconds
        async with visitors(gate, 2):
            with pytest.raises(ApiError) as refusal:
                async with gate.place():
                    pytest.fail("there is no place")
            assert refusal.value.header_items()["retry-after"] == expected


async def test_how_long_requests_take_is_learnt() -> None:
    gate = admission()
    for _ in range(200):
        async with gate.place():
            pass
    assert gate._mean_seconds < 0.01


async def test_who_gives_up_waiting_leaves_no_trace() -> None:
    gate = admission()
    async with visitors(gate, 3) as (first, second, third):
        second.task.cancel()
        await settle()
        assert second.task.cancelled()
        assert shown(gate) == (1, 1)
        first.go.set()
        await settle()
        assert (third.has_place, shown(gate)) == (True, (1, 0))


async def test_who_gives_up_when_the_place_has_just_come_hands_it_on() -> None:
    gate = admission()
    async with visitors(gate, 3) as (first, second, third):
        first.go.set()
        await first.task  # handed over to the second, who has not run yet
        second.task.cancel()
        await settle()
        assert second.task.cancelled()
        assert (second.has_place, third.has_place, shown(gate)) == (False, True, (1, 0))


async def test_the_last_one_who_gives_up_in_that_moment_leaves_the_place_free() -> None:
    gate = admission()
    async with visitors(gate, 2) as (first, second):
        first.go.set()
        await first.task
        second.task.cancel()
        await settle()
        assert shown(gate) == (0, 0)


@pytest.mark.parametrize("failure", [ValueError, asyncio.CancelledError])
async def test_a_failure_frees_the_place_and_goes_on(failure: type[BaseException]) -> None:
    gate = admission()
    with pytest.raises(failure):
        async with gate.place():
            raise failure
    assert shown(gate) == (0, 0)


async def test_a_stampede_with_random_leavers_ends_empty() -> None:
    gate = admission(places=3, queue=1000, wait_seconds=0.02)
    most = 0

    async def visit(number: int) -> None:
        nonlocal most
        async with gate.place():
            most = max(most, gate.num_in_flight)
            await asyncio.sleep(number % 5 / 1000)

    tasks = [asyncio.create_task(visit(number)) for number in range(300)]
    for task in tasks[::7]:
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (most, shown(gate)) == (3, (0, 0))
