"""Which worker takes a new session, and what is answered when none does."""

import asyncio

import pytest

from kakeya_shared.errors.tree import Draining, InvalidField, NoCapacity, NoWorker
from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.stack import Client, Stack, answer, eventually


async def _opening(worker: FakeWorker) -> int:
    return worker.calls["OpenSession"]


async def _none(stack: Stack) -> bool:
    return not await stack.session_keys()


async def test_a_worker_that_cannot_hold_the_session_is_passed_over(stack: Stack, client: Client) -> None:
    small = await stack.worker(client, "worker-a", num_lanes=8)
    large = await stack.worker(client, "worker-b", num_lanes=2, window=100)
    assert (await client.info(await client.session(window=50))).worker == "worker-b"
    assert (small.calls["OpenSession"], large.calls["OpenSession"]) == (1, 1)
    assert (await client.workers())["worker-a"].reserved_bytes == 0
    with pytest.raises(InvalidField, match="the lane cannot hold it"):
        await client.create(window=500)


async def test_what_is_invalid_here_and_full_there_lacks_capacity(stack: Stack, client: Client) -> None:
    await stack.worker(client, "worker-a", num_lanes=8)
    large = await stack.worker(client, "worker-b", num_lanes=1, window=100)
    large.failures["OpenSession"] = [NoCapacity("an orphan is in the way")] * 100  # it is asked again after 10 ms
    with pytest.raises(NoCapacity):
        await client.create(window=50)
    large.failures.clear()
    num_asked = large.calls["OpenSession"]
    await client.create(window=50)
    with pytest.raises(NoCapacity):
        await client.create(window=50)  # worker-b's ledger has no bytes left, so that it is not even asked
    assert large.calls["OpenSession"] == num_asked + 1


async def test_what_is_invalid_here_and_unanswered_there_has_no_worker(stack: Stack, client: Client) -> None:
    await stack.worker(client, "worker-a")
    await (await stack.worker(client, "worker-b", window=100)).vanish()
    with pytest.raises(NoWorker, match="answers"):
        await client.create(window=50)


async def test_a_worker_that_left_meanwhile_is_passed_over(stack: Stack, client: Client) -> None:
    first = await stack.worker(client, "worker-a", num_lanes=2)
    second = await stack.worker(client, "worker-b", num_lanes=1)
    first.flowing.clear()
    creating = asyncio.create_task(client.create())
    await eventually(lambda: _opening(first))
    second.stop_beating()
    await answer(client.registry.Leave(second.leave_request()))
    first.num_lanes = 0
    first.flowing.set()
    with pytest.raises(NoCapacity):
        await creating
    assert second.calls["OpenSession"] == 0
    await eventually(lambda: _none(stack))


async def test_a_worker_that_left_before_its_lane_was_on_record_has_no_session(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    worker.flowing.clear()
    creating = asyncio.create_task(client.create())
    await eventually(lambda: _opening(worker))
    worker.stop_beating()
    await answer(client.registry.Leave(worker.leave_request()))
    worker.flowing.set()
    with pytest.raises(NoWorker):
        await creating
    await eventually(lambda: _none(stack))


async def test_a_fingerprint_is_where_the_session_goes(stack: Stack, client: Client) -> None:
    await stack.worker(client, "worker-a", num_lanes=8, fingerprint="aa")
    await stack.worker(client, "worker-b", num_lanes=1, fingerprint="bb")
    created = await client.create(fingerprint="bb")
    assert created.fingerprint == "bb"
    info = await client.info(created.session_id)
    assert (info.worker, info.fingerprint) == ("worker-b", "bb")
    with pytest.raises(NoCapacity):
        await client.create(fingerprint="bb")
    assert (await client.create()).fingerprint == "aa"


async def test_a_fingerprint_that_nobody_has_is_answered_with_those_that_are_served(
    stack: Stack, client: Client
) -> None:
    for name in "ab":
        await stack.worker(client, f"worker-{name}", fingerprint=name * 64)
    with pytest.raises(NoWorker, match=f"fingerprint \\(served: {'a' * 64}, {'b' * 64}\\)") as raised:
        await client.create(fingerprint="c" * 64)
    assert raised.value.retry_after_seconds
    for number in range(10):
        await stack.worker(client, f"worker-{number}", fingerprint=str(number))
    with pytest.raises(NoWorker, match=r"served: 0, 1, 2, 3, 4, 5, 6, 7, \.\.\.\)"):
        await client.create(fingerprint="c" * 64)


async def test_without_a_worker_there_is_no_session(client: Client) -> None:
    with pytest.raises(NoWorker) as raised:
        await client.create()
    assert raised.value.retry_after_seconds


async def test_an_unknown_model_is_answered_with_those_that_are_served(client: Client, worker: FakeWorker) -> None:
    with pytest.raises(NoWorker, match="Tiny"):
        await client.create(model="Huge")


async def test_with_several_models_one_must_be_named(stack: Stack, client: Client, worker: FakeWorker) -> None:
    await stack.worker(client, "worker-b", pool="other", model="Other")
    with pytest.raises(InvalidField, match="Other, Tiny"):
        await client.create()
    assert (await client.create(model="Other")).session_id.startswith("other.")
    by_default = await stack.router(default_model="Other")
    assert (await by_default.create()).model == "Other"


async def test_a_full_pool_is_refused_with_a_retry(stack: Stack, client: Client) -> None:
    await stack.worker(client, num_lanes=1)
    first = await client.session()
    with pytest.raises(NoCapacity) as raised:
        await client.create()
    assert 1 <= (raised.value.retry_after_seconds or 0) <= 2
    await client.close(first)
    await client.create()


async def test_the_next_worker_is_tried_when_one_is_full_or_away(stack: Stack, client: Client) -> None:
    roomy = await stack.worker(client, "worker-a", num_lanes=8)
    await stack.worker(client, "worker-b", num_lanes=4)
    roomy.failures["OpenSession"] = [NoCapacity("an orphan is in the way")]
    assert (await client.info(await client.session())).worker == "worker-b"
    roomy.failures["OpenSession"] = [RuntimeError("a bug of this worker's")]
    assert (await client.info(await client.session())).worker == "worker-b"
    await roomy.vanish()
    assert (await client.info(await client.session())).worker == "worker-b"
    ledger = (await client.workers())["worker-a"]
    assert (ledger.reserved_bytes, ledger.num_sessions) == (0, 0)


async def test_when_all_workers_are_full_after_all_nothing_is_left(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    worker.failures["OpenSession"] = [NoCapacity("an orphan is in the way")] * 100  # it is asked again after 10 ms
    with pytest.raises(NoCapacity):
        await client.create(request_id="r")
    assert not await stack.session_keys()


async def test_when_no_worker_answers_nothing_is_left(stack: Stack, client: Client, worker: FakeWorker) -> None:
    await worker.vanish()
    with pytest.raises(NoWorker):
        await client.create()
    assert not await stack.session_keys()


async def test_the_last_lane_goes_to_one_of_many(stack: Stack, client: Client) -> None:
    await stack.worker(client, num_lanes=1)
    for _ in range(10):
        await asyncio.gather(*(client.workers() for _ in range(6)))
        answers = await asyncio.gather(*(client.session() for _ in range(6)), return_exceptions=True)
        opened = [answer for answer in answers if isinstance(answer, str)]
        assert len(opened) == 1
        assert all(isinstance(answer, NoCapacity) for answer in answers if not isinstance(answer, str))
        await client.close(opened[0])


async def test_a_worker_that_drains_is_passed_over(stack: Stack, client: Client) -> None:
    draining = await stack.worker(client, "worker-a", num_lanes=8)
    await stack.worker(client, "worker-b", num_lanes=4)
    draining.failures["OpenSession"] = [Draining("shutting down")]
    assert (await client.info(await client.session())).worker == "worker-b"
