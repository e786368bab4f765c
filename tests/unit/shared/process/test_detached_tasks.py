"""Tasks that outlive the call that started them."""

import asyncio
import gc

import pytest
import structlog

from kakeya_shared.errors.tree import NoCapacity
from kakeya_shared.process.detached_tasks import DetachedTasks


async def test_detached_work_goes_on_when_its_caller_is_cancelled() -> None:
    tasks, done = DetachedTasks(), asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0.05)
        done.set()

    caller = asyncio.create_task(tasks.complete(work()))
    await asyncio.sleep(0.01)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await tasks.drain(1)
    assert done.is_set()


@pytest.mark.parametrize(("error", "events"), [(NoCapacity("full"), []), (ValueError("x"), ["detached work failed"])])
async def test_an_answer_to_a_client_who_has_gone_is_dropped_and_all_else_logged(
    error: Exception, events: list[str]
) -> None:
    tasks, may_fail = DetachedTasks(), asyncio.Event()
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))

    async def work() -> None:
        await may_fail.wait()
        raise error

    with structlog.testing.capture_logs() as logs:
        caller = asyncio.create_task(tasks.complete(work()))
        await asyncio.sleep(0.01)
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        may_fail.set()
        await tasks.drain(1)
        await asyncio.sleep(0)
        gc.collect()
    assert [line["event"] for line in logs] == events
    assert complaints == []


async def test_draining_cancels_what_takes_too_long() -> None:
    tasks = DetachedTasks()
    late = tasks.start(asyncio.sleep(60))
    assert await tasks.drain(0.01) == 1
    assert late.cancelled()
    assert await tasks.drain(0.01) == 0


async def test_draining_waits_for_what_is_started_meanwhile() -> None:
    tasks, done = DetachedTasks(), []

    async def first() -> None:
        await asyncio.sleep(0)
        tasks.start(second())

    async def second() -> None:
        await asyncio.sleep(0.01)
        done.append("second")

    tasks.start(first())
    assert await tasks.drain(60) == 0
    assert done == ["second"]


async def test_what_a_late_one_starts_at_its_end_is_cancelled_too() -> None:
    tasks = DetachedTasks()
    started = []

    async def late() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            started.append(tasks.start(asyncio.sleep(60)))

    tasks.start(late())
    await asyncio.sleep(0)
    assert await tasks.drain(0.01) == 2
    assert started[0].cancelled()
