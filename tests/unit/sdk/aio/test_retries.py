"""What is tried again, and what is not."""

import time

import pytest

import kakeya
from kakeya import AsyncClient, AsyncSession
from tests.unit.sdk.cuttable_link import CuttableLink
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails, stalls


async def test_a_create_whose_answer_was_lost_gets_the_same_session(
    runtime: ScriptedRuntime, link: CuttableLink
) -> None:
    runtime.after["CreateSession"].append(lambda _: link.cut())
    async with AsyncClient(link.address) as client:
        session = await client.create_session()
    assert list(runtime.sessions) == [session.id]
    assert len({request.request_id for request in runtime.requests["CreateSession"]}) == 1
    assert len(runtime.requests["CreateSession"]) == 2


async def test_an_append_whose_answer_was_lost_is_not_applied_twice(
    cuttable_session: AsyncSession, runtime: ScriptedRuntime, link: CuttableLink
) -> None:
    await cuttable_session.append([1])
    runtime.after["AppendTokens"].append(lambda _: link.cut())
    assert (await cuttable_session.append([2, 3])).history_length == 3
    assert runtime.sessions[cuttable_session.id].history == [1, 2, 3]
    assert [request.expected_history_length for request in runtime.requests["AppendTokens"]] == [0, 1, 1]


async def test_an_append_of_which_part_was_applied_is_reported(
    cuttable_session: AsyncSession, runtime: ScriptedRuntime, link: CuttableLink
) -> None:
    def lose_half(_: object) -> None:
        runtime.sessions[cuttable_session.id].history.append(2)
        link.cut()

    runtime.before["AppendTokens"].append(lose_half)
    with pytest.raises(kakeya.HistoryLengthMismatch):
        await cuttable_session.append([2, 3])


async def test_a_repeated_append_waits_for_the_lost_attempt_to_stop(
    cuttable_session: AsyncSession, runtime: ScriptedRuntime, link: CuttableLink
) -> None:
    runtime.before["AppendTokens"] += [lambda _: link.cut(), fails("OPERATION_RUNNING"), fails("OPERATION_RUNNING")]
    assert (await cuttable_session.append([1])).history_length == 1
    assert len(runtime.requests["AppendTokens"]) >= 3
    assert not runtime.requests["GetSessionInfo"]


async def test_an_append_that_another_router_has_ended_is_completed(
    cuttable_session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    runtime.after["AppendTokens"].append(fails("OPERATION_STOPPED"))
    assert (await cuttable_session.append([1, 2])).history_length == 2
    assert runtime.sessions[cuttable_session.id].history == [1, 2]


async def test_a_rewind_whose_answer_was_lost_takes_place_once(
    cuttable_session: AsyncSession, runtime: ScriptedRuntime, link: CuttableLink
) -> None:
    await cuttable_session.append([1, 2, 3])
    runtime.after["RewindSession"].append(lambda _: link.cut())
    assert (await cuttable_session.rewind(2)).history_length == 2
    assert [request.expected_history_length for request in runtime.requests["RewindSession"]] == [3, 3]


async def test_an_append_without_a_length_is_not_repeated(runtime: ScriptedRuntime, link: CuttableLink) -> None:
    async with AsyncClient(link.address, check_history=False) as client:
        session = await client.create_session()
        runtime.before["AppendTokens"].append(lambda _: link.cut())
        with pytest.raises(kakeya.ConnectionFailed):
            await session.append([1])
    assert len(runtime.requests["AppendTokens"]) == 1


async def test_info_and_close_are_repeated(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    runtime.before["GetSessionInfo"].append(fails("STORE_UNAVAILABLE"))
    runtime.before["CloseSession"].append(fails("DRAINING"))
    assert (await session.info()).history_length == 0
    assert await session.close() == 0


async def test_a_close_whose_answer_was_lost_is_done(
    cuttable_session: AsyncSession, runtime: ScriptedRuntime, link: CuttableLink
) -> None:
    runtime.after["CloseSession"].append(lambda _: link.cut())
    assert await cuttable_session.close() is None
    assert len(runtime.requests["CloseSession"]) == 2


async def test_attempts_are_bounded(runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"] += [fails("NO_WORKER") for _ in range(9)]
    async with AsyncClient(runtime.address, max_attempts=3) as client:
        with pytest.raises(kakeya.NoWorker):
            await client.create_session()
    assert len(runtime.requests["CreateSession"]) == 3


async def test_a_lost_worker_is_not_waited_for(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    runtime.before["AppendTokens"].append(fails("WORKER_LOST"))
    with pytest.raises(kakeya.WorkerLost):
        await session.append([1])
    assert len(runtime.requests["AppendTokens"]) == 1


async def test_a_retry_waits_as_long_as_the_runtime_asks(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    runtime.before["GetSessionInfo"].append(fails("STORE_UNAVAILABLE", retry_after_seconds=0.4))
    started = time.monotonic()
    await session.info()
    assert time.monotonic() - started >= 0.4


async def test_the_timeout_bounds_the_retries(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    runtime.before["GetSessionInfo"].append(fails("STORE_UNAVAILABLE", retry_after_seconds=30))
    started = time.monotonic()
    with pytest.raises(kakeya.StoreUnavailable) as raised:
        await session.info(timeout_seconds=20)
    assert raised.value.retry_after_seconds == 30
    assert time.monotonic() - started < 20  # waiting could not have helped


async def test_the_timeout_bounds_a_call(runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"].append(stalls)
    async with AsyncClient(runtime.address, timeout_seconds=0.2) as client:
        with pytest.raises(kakeya.DeadlineExceeded):
            await client.create_session()


async def test_no_capacity_is_final_unless_waiting_is_asked_for(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"].append(fails("NO_CAPACITY", retry_after_seconds=0.1))
    with pytest.raises(kakeya.NoCapacity) as raised:
        await client.create_session()
    assert raised.value.retry_after_seconds == 0.1
    runtime.before["CreateSession"] += [fails("NO_CAPACITY", retry_after_seconds=0.1) for _ in range(2)]
    await client.create_session(wait_for_capacity_seconds=20)
    assert len(runtime.requests["CreateSession"]) == 4


async def test_waiting_for_capacity_ends(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"] += [fails("NO_CAPACITY", retry_after_seconds=1) for _ in range(9)]
    with pytest.raises(kakeya.NoCapacity):
        await client.create_session(wait_for_capacity_seconds=3.2)
    assert 2 <= len(runtime.requests["CreateSession"]) <= 4


@pytest.mark.parametrize("reason", ["QUOTA_EXCEEDED", "QUEUE_FULL", "QUEUE_TIMED_OUT", "TOO_MANY_CALLS"])
async def test_whoever_waits_as_asked_gets_in(client: AsyncClient, runtime: ScriptedRuntime, reason: str) -> None:
    runtime.before["CreateSession"] += [fails(reason, retry_after_seconds=0.2) for _ in range(2)]
    started = time.monotonic()
    await client.create_session(wait_for_capacity_seconds=20)
    assert time.monotonic() - started >= 0.4
    assert len({request.request_id for request in runtime.requests["CreateSession"]}) == 1


@pytest.mark.parametrize("reason", ["QUOTA_EXCEEDED", "QUEUE_FULL", "QUEUE_TIMED_OUT"])
async def test_what_is_used_up_is_final_unless_waiting_is_asked_for(
    client: AsyncClient, runtime: ScriptedRuntime, reason: str
) -> None:
    runtime.before["CreateSession"].append(fails(reason, retry_after_seconds=0.1))
    with pytest.raises(kakeya.Exhausted) as raised:
        await client.create_session()
    assert (raised.value.reason, raised.value.retry_after_seconds) == (reason, 0.1)
    runtime.before["CreateSession"].append(fails(reason, retry_after_seconds=30))
    with pytest.raises(kakeya.Exhausted):
        await client.create_session(wait_for_capacity_seconds=5)  # in which it could not come in
    assert len(runtime.requests["CreateSession"]) == 2


async def test_a_used_up_quota_of_tokens_is_the_callers_to_wait_out(
    session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    for method in ("AppendTokens", "Generate"):
        runtime.before[method].append(fails("QUOTA_EXCEEDED", retry_after_seconds=0.1, quota="tokens_per_minute"))
    with pytest.raises(kakeya.QuotaExceeded) as raised:
        await session.append([1])
    assert (raised.value.retry_after_seconds, raised.value.metadata) == (0.1, {"quota": "tokens_per_minute"})
    assert (await session.append([1])).history_length == 1
    with pytest.raises(kakeya.QuotaExceeded):
        await session.generate(max_tokens=1).all()
    assert await session.generate(max_tokens=1).all() == [2]


async def test_a_busy_runtime_is_asked_again_where_that_is_safe(
    session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    for method in ("AppendTokens", "GetSessionInfo", "Generate", "CloseSession"):
        runtime.before[method].append(fails("TOO_MANY_CALLS", retry_after_seconds=0.1))
    assert (await session.append([1])).history_length == 1
    assert (await session.info()).history_length == 1
    with pytest.raises(kakeya.TooManyCalls):
        await session.generate(max_tokens=1).all()
    assert await session.close() == 1


async def test_a_runtime_that_is_not_there(runtime: ScriptedRuntime) -> None:
    runtime.stop()
    async with AsyncClient(runtime.address, max_attempts=2) as client:
        with pytest.raises(kakeya.ConnectionFailed):
            await client.create_session()


async def test_a_session_whose_answer_never_came_is_closed(runtime: ScriptedRuntime) -> None:
    runtime.after["CreateSession"].append(stalls)
    async with AsyncClient(runtime.address) as client:
        with pytest.raises(kakeya.DeadlineExceeded):
            await client.create_session(timeout_seconds=1.5)
    assert not runtime.sessions
    assert len(runtime.by_request_id) == 1
    assert {request.request_id for request in runtime.requests["CloseSession"]} == runtime.by_request_id.keys()


async def test_a_fork_whose_answer_never_came_is_closed_and_its_source_is_not(runtime: ScriptedRuntime) -> None:
    async with AsyncClient(runtime.address) as client:
        source = await client.create_session()
        await source.append([1, 2])
        runtime.after["CreateSession"].append(stalls)
        with pytest.raises(kakeya.DeadlineExceeded):
            await client.create_session(fork_from=source, timeout_seconds=1.5)
    assert list(runtime.sessions) == [source.id]


async def test_a_session_that_a_broken_connection_left_is_closed(runtime: ScriptedRuntime, link: CuttableLink) -> None:
    runtime.after["CreateSession"].append(lambda _: link.cut())
    runtime.before["CloseSession"].append(fails("DRAINING"))
    async with AsyncClient(link.address, max_attempts=2) as client:
        runtime.before["CreateSession"] += [lambda _: None, fails("NO_CAPACITY")]
        with pytest.raises(kakeya.NoCapacity):
            await client.create_session()
    assert (list(runtime.sessions), len(runtime.by_request_id)) == ([], 1)


@pytest.mark.parametrize("reason", ["NO_CAPACITY", "NO_WORKER", "INVALID_FIELD"])
async def test_what_was_refused_opened_nothing(runtime: ScriptedRuntime, reason: str) -> None:
    runtime.before["CreateSession"].append(fails(reason))
    async with AsyncClient(runtime.address, max_attempts=1) as client:
        with pytest.raises(kakeya.KakeyaError):
            await client.create_session()
    assert not runtime.requests["CloseSession"]


async def test_a_client_does_not_wait_long_for_a_router_that_does_not_answer(runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"].append(stalls)
    runtime.before["CloseSession"].append(stalls)
    started = time.monotonic()
    async with AsyncClient(runtime.address) as client:
        with pytest.raises(kakeya.DeadlineExceeded):
            await client.create_session(timeout_seconds=0.2)
    assert time.monotonic() - started < 20, "it waits for 2 s, not for 30"
