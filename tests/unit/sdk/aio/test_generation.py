"""Leaving a generation early, and what the session does afterwards."""

import gc

import pytest

import kakeya
from kakeya import AsyncClient, AsyncGeneration, AsyncSession
from tests.unit.sdk.cuttable_link import CuttableLink
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails, stalls


async def test_leaving_the_context_cancels_the_call(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    runtime.hold_after = 2
    async with session.turn([1], max_tokens=9) as generation:
        async for token_id in generation:
            if token_id == 3:
                break
    runtime.wait_for(lambda: runtime.num_cancelled == 1)
    assert generation.done is None
    assert session.history_length is None


async def test_an_exception_cancels_the_call(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    runtime.hold_after = 1
    with pytest.raises(ZeroDivisionError):
        async with session.turn([1], max_tokens=9):
            raise ZeroDivisionError
    runtime.wait_for(lambda: runtime.num_cancelled == 1)


async def test_break_alone_cancels_the_call(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    runtime.hold_after = 1
    generation = session.turn([1], max_tokens=9)
    async for _ in generation:
        break
    gc.collect()  # for interpreters that do not count references
    runtime.wait_for(lambda: runtime.num_cancelled == 1)
    with pytest.raises(kakeya.Cancelled, match="left before its end"):
        await generation.all()


async def test_dropping_an_iterator_cancels_the_call(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    runtime.hold_after = 1
    tokens = aiter(session.turn([1], max_tokens=9))
    assert await anext(tokens) == 2
    del tokens
    gc.collect()
    runtime.wait_for(lambda: runtime.num_cancelled == 1)


async def test_cancelling_after_the_end_changes_nothing(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    generation = session.turn([1], max_tokens=2)
    assert await generation.all() == [2, 3]
    generation.cancel()
    assert session.history_length == 3
    assert [token_id async for token_id in generation] == []
    assert runtime.num_cancelled == 0


async def test_what_is_cancelled_before_it_starts_is_never_sent(
    session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    generation = session.turn([1], max_tokens=2)
    generation.cancel()
    with pytest.raises(kakeya.Cancelled):
        await generation.all()
    assert not runtime.requests["AppendTokens"]


async def test_a_turn_cancelled_during_its_append_generates_nothing(
    session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    runtime.has_turn = False
    generation = session.turn([1], max_tokens=2)
    runtime.before["AppendTokens"].append(lambda _: generation.cancel())
    with pytest.raises(kakeya.Cancelled):
        await generation.all()
    assert not runtime.requests["Generate"]
    assert session.history_length is None


async def test_the_next_operation_waits_until_a_cancelled_one_has_stopped(
    session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    runtime.hold_after, runtime.stop_seconds = 2, 0.5
    async for token_id in session.turn([1], max_tokens=9):
        if token_id == 3:
            break
    runtime.hold_after = None
    assert await session.turn([50], max_tokens=1).all() == [51]
    assert len(runtime.requests["Turn"]) > 2  # it was refused at first
    history = runtime.sessions[session.id].history
    assert history == [1, 2, 3, 50, 51]
    assert session.history_length == 5


async def test_a_generate_waits_too(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    runtime.hold_after, runtime.stop_seconds = 1, 0.3
    async with session.turn([1], max_tokens=9):
        pass
    runtime.hold_after = None
    assert await session.generate(max_tokens=1).all() == [3]


async def test_a_history_that_moved_meanwhile_is_read_again(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    runtime.hold_after = 1
    async with session.turn([1], max_tokens=9):
        pass
    runtime.wait_for(lambda: runtime.num_cancelled == 1)
    # The answer of GetSessionInfo is overtaken by the last token of the operation that was cancelled.
    runtime.before["AppendTokens"].append(lambda _: runtime.sessions[session.id].history.append(99))
    await session.append([50])
    assert runtime.sessions[session.id].history == [1, 2, 99, 50]


async def test_an_operation_of_somebody_else_is_not_waited_for(
    client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    runtime.hold_after = 1
    async with session.turn([1], max_tokens=9):
        with pytest.raises(kakeya.OperationRunning):
            await client.session(session.id).append([2])
    assert len(runtime.requests["AppendTokens"]) == 2


async def test_a_refused_request_fails_when_entered(session: AsyncSession) -> None:
    with pytest.raises(kakeya.EmptyHistory):
        async with session.generate(max_tokens=1):
            pytest.fail("entered")
    with pytest.raises(kakeya.InvalidField, match="INVALID_FIELD") as raised:
        await session.turn([1], max_tokens=0).all()
    assert raised.value.metadata == {"field": "max_tokens", "part": "generate"}


async def test_a_stream_that_fails_in_the_middle_raises(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    runtime.after["Generate"].append(fails("WORKER_LOST"))
    seen = []
    with pytest.raises(kakeya.WorkerLost):
        async for token_id in session.turn([1], max_tokens=2):
            seen.append(token_id)  # noqa: PERF401  # an error must not swallow what came before it
    assert seen == [2, 3]
    assert session.history_length is None


async def test_a_generate_that_got_lost_takes_place_once(
    cuttable_session: AsyncSession, runtime: ScriptedRuntime, link: CuttableLink
) -> None:
    """The client cannot know whether it came through: the runtime does, by its name."""
    await cuttable_session.append([1])
    runtime.before["Generate"].append(lambda _: link.cut())
    assert await cuttable_session.generate(max_tokens=1).all() == [2]
    assert (await cuttable_session.info()).history_length == 2
    first, *repeated = runtime.requests["Generate"]
    assert [request.op_id for request in repeated] == [first.op_id]


def have_arrived(runtime: ScriptedRuntime, generation: AsyncGeneration, num_tokens: int) -> None:
    """Returns when so many tokens have come to the client; called by the runtime."""
    runtime.wait_for(lambda: len(generation._token_ids) >= num_tokens)


@pytest.mark.parametrize("num_sent", [0, 2, 8])
async def test_a_cut_in_the_middle_goes_unnoticed(
    cuttable_session: AsyncSession, runtime: ScriptedRuntime, link: CuttableLink, num_sent: int
) -> None:
    def cut_once() -> None:
        runtime.hold_after = None
        have_arrived(runtime, generation, num_sent)
        link.cut()

    runtime.hold_after, runtime.on_hold = num_sent, cut_once
    generation = cuttable_session.turn([1], max_tokens=9)
    assert await generation.all() == list(range(2, 11))
    assert generation.done is not None
    assert (generation.done.num_tokens, generation.done.history_length) == (9, 10)
    assert cuttable_session.history_length == 10
    resumed = runtime.requests["Generate"][-1]
    assert resumed.op_id == runtime.requests["Generate"][0].op_id
    assert resumed.expected_history_length == 1
    assert list(resumed.resume_token_ids) == list(range(2, 2 + num_sent))


async def test_a_cut_after_the_last_token_is_gone_on_with_for_the_result(
    cuttable_session: AsyncSession, runtime: ScriptedRuntime, link: CuttableLink
) -> None:
    def cut(context: object) -> None:
        have_arrived(runtime, generation, 3)
        link.cut()

    runtime.after["Generate"].append(cut)
    generation = cuttable_session.turn([1], max_tokens=3)
    assert await generation.all() == [2, 3, 4]
    assert generation.done is not None
    assert generation.done.num_tokens == 3


async def test_without_retries_a_cut_in_the_middle_raises(runtime: ScriptedRuntime, link: CuttableLink) -> None:
    async with AsyncClient(link.address, max_attempts=1) as client:
        session = await client.create_session()
        runtime.hold_after, runtime.on_hold = 2, link.cut
        with pytest.raises(kakeya.ConnectionFailed):
            await session.turn([1], max_tokens=9).all()
        runtime.hold_after = None
    assert len(runtime.requests["Generate"]) == 1


async def test_a_generation_that_was_left_is_not_gone_on_with(
    cuttable_session: AsyncSession, runtime: ScriptedRuntime, link: CuttableLink
) -> None:
    generation = cuttable_session.turn([1], max_tokens=9)

    def leave_and_cut() -> None:
        runtime.hold_after = None
        have_arrived(runtime, generation, 2)
        generation.cancel()
        link.cut()

    runtime.hold_after, runtime.on_hold = 2, leave_and_cut
    with pytest.raises(kakeya.Cancelled):
        await generation.all()
    assert len(runtime.requests["Generate"]) == 1


async def test_an_operation_that_the_runtime_does_not_know_any_more_is_told(
    cuttable_session: AsyncSession, runtime: ScriptedRuntime, link: CuttableLink
) -> None:
    def cut_and_forget() -> None:
        runtime.hold_after = None
        runtime.before["Generate"].append(fails("HISTORY_LENGTH_MISMATCH"))
        have_arrived(runtime, generation, 2)
        link.cut()

    runtime.hold_after, runtime.on_hold = 2, cut_and_forget
    generation = cuttable_session.turn([1], max_tokens=9)
    with pytest.raises(kakeya.HistoryLengthMismatch):
        await generation.all()
    assert cuttable_session.history_length is None


async def test_what_befalls_the_stream_after_its_result_changes_nothing(
    session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    runtime.after["done"].append(fails("INTERNAL"))
    generation = session.turn([1], max_tokens=1)
    assert await generation.all() == [2]
    assert generation.done is not None
    assert session.history_length == 2


async def test_a_timeout_ends_a_generation(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    runtime.hold_after = 1
    with pytest.raises(kakeya.DeadlineExceeded):
        await session.turn([1], max_tokens=9, timeout_seconds=1.5).all()
    runtime.wait_for(lambda: runtime.num_cancelled == 1)
    runtime.hold_after = None
    assert (await session.append([5])).history_length == 3


async def test_a_timeout_ends_an_append(runtime: ScriptedRuntime) -> None:
    runtime.before["AppendTokens"].append(stalls)
    async with AsyncClient(runtime.address, operation_timeout_seconds=0.2) as client:
        session = await client.create_session()
        with pytest.raises(kakeya.DeadlineExceeded):
            await session.append([1])


async def test_a_stream_without_a_result_is_an_error(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    await session.append([1])
    runtime.breaks_off = True
    with pytest.raises(kakeya.RpcFailed, match="without a result"):
        await session.generate(max_tokens=1).all()


async def test_a_generation_that_somebody_stopped_goes_on(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    """As when a router that was late has ended it."""
    runtime.before["Generate"].append(fails("OPERATION_STOPPED"))
    assert await session.turn([1], max_tokens=3).all() == [2, 3, 4]


async def test_a_generation_that_was_not_read_stays_stopped(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    runtime.before["Generate"].append(fails("OPERATION_STOPPED", cause="unread"))
    with pytest.raises(kakeya.OperationStopped):
        await session.turn([1], max_tokens=3).all()
    assert len(runtime.requests["Generate"]) == 1
