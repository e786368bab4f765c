"""What only the async client can meet: tasks that are cancelled, loops that come and go."""

import asyncio
import os
import random
import signal
import threading
from contextlib import suppress

import grpc
import pytest

import kakeya
from kakeya import AsyncClient, AsyncSession
from kakeya._transport import _aio_transport
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, stalls


async def test_cancelling_a_task_cancels_its_generation(runtime: ScriptedRuntime) -> None:
    runtime.hold_after = 2
    async with AsyncClient(runtime.address) as client:
        session = await client.create_session()
        task = asyncio.create_task(session.turn([1], max_tokens=9).all())
        await asyncio.to_thread(runtime.wait_for, lambda: len(runtime.sessions[session.id].history) == 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(runtime.wait_for, lambda: runtime.num_cancelled == 1)
        runtime.hold_after = None
        assert (await session.append([7])).history_length == 4


async def test_cancelling_a_task_cancels_its_append(runtime: ScriptedRuntime) -> None:
    runtime.before["AppendTokens"].append(stalls)
    async with AsyncClient(runtime.address) as client:
        session = await client.create_session()
        task = asyncio.create_task(session.append([1]))
        await asyncio.to_thread(runtime.wait_for, lambda: bool(runtime.requests["AppendTokens"]))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert session.history_length is None
        assert (await session.append([1])).history_length == 1


async def test_a_cancellation_that_meets_the_response_is_not_lost() -> None:
    async def swallow() -> str:  # as gRPC does then; on a real wire it takes a moment that cannot be chosen
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(10)
        return "response"

    task = asyncio.create_task(_aio_transport._answer(swallow(), ""))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancelling_a_generation_from_another_task_is_an_error_there(runtime: ScriptedRuntime) -> None:
    runtime.hold_after = 2
    async with AsyncClient(runtime.address) as client:
        session = await client.create_session()
        generation = session.turn([1], max_tokens=9)
        task = asyncio.create_task(generation.all())
        await asyncio.to_thread(runtime.wait_for, lambda: len(runtime.sessions[session.id].history) == 3)
        await asyncio.sleep(0.1)
        generation.cancel()
        with pytest.raises(kakeya.Cancelled):
            await task


async def test_closing_the_client_ends_its_calls(runtime: ScriptedRuntime) -> None:
    runtime.before["GetSessionInfo"].append(stalls)
    client = AsyncClient(runtime.address)
    session = await client.create_session()
    task = asyncio.create_task(session.info())
    await asyncio.to_thread(runtime.wait_for, lambda: bool(runtime.requests["GetSessionInfo"]))
    await client.close()
    with pytest.raises(kakeya.Cancelled):
        await task


def test_a_client_may_be_made_before_its_event_loop(runtime: ScriptedRuntime) -> None:
    client = AsyncClient(runtime.address)

    async def talk() -> list[int]:
        async with client, await client.create_session() as session:
            return await session.turn([1], max_tokens=2).all()

    assert asyncio.run(talk()) == [2, 3]


def test_an_iterator_may_outlive_its_event_loop(runtime: ScriptedRuntime) -> None:
    runtime.hold_after = 1
    survivors = []

    async def leave_behind() -> None:
        client = AsyncClient(runtime.address)
        session = await client.create_session()
        tokens = aiter(session.turn([1], max_tokens=9))
        await anext(tokens)
        survivors.append(tokens)

    asyncio.run(leave_behind())
    survivors.clear()  # would be an unraisable exception, which fails the test
    runtime.wait_for(lambda: runtime.num_cancelled == 1)


def test_ctrl_c_at_any_moment_leaves_nothing_behind(runtime: ScriptedRuntime) -> None:
    moments = random.Random(7)

    async def talk(session: AsyncSession) -> None:
        await session.turn([1], max_tokens=9).all()

    with asyncio.Runner() as runner:
        # Makes the loop wake for every signal; else one that comes just before it sleeps waits for an event.
        runner.get_loop().add_signal_handler(signal.SIGUSR1, print)
        client = AsyncClient(runtime.address)
        for _ in range(60):
            session = runner.run(client.create_session())
            runtime.hold_after = 3
            timer = threading.Timer(moments.uniform(0.0, 0.006), os.kill, (os.getpid(), signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                timer.start()
                runner.run(talk(session))
            runtime.hold_after = None
            runner.run(talk(session))  # nothing is in the way
            runner.run(session.close())
        runner.run(client.close())
    assert not runtime.sessions


async def test_tls_credentials_are_used() -> None:
    runtime = ScriptedRuntime(grpc.local_server_credentials())
    async with AsyncClient(runtime.address, credentials=grpc.local_channel_credentials()) as client:
        assert (await client.create_session()).id == "counter.0"
    runtime.stop()


async def test_a_session_that_a_cancelled_task_never_saw_is_closed(runtime: ScriptedRuntime) -> None:
    runtime.after["CreateSession"].append(stalls)
    async with AsyncClient(runtime.address) as client:
        task = asyncio.create_task(client.create_session())
        await asyncio.to_thread(runtime.wait_for, lambda: len(runtime.sessions) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(runtime.wait_for, lambda: not runtime.sessions)
