"""Forks of what a session was, in real processes: they answer as if nothing had come after."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import kakeya
from tests.integration.processes import SINK, WINDOW, Runtime, eventually, runtime
from tests.integration.test_forks import Said, said
from tests.integration.test_recovery import ROUTER_FLAGS

NUM_TURNS = 6
OPTIONS: dict[str, Any] = {"max_tokens": 40, "temperature": 1.0, "seed": 3}


@pytest.fixture
def remembering(model: Path, tmp_path: Path) -> Iterator[Runtime]:
    """Two workers with one snapshot store."""
    environment = {"KAKEYA_WORKER_SNAPSHOTS": str(tmp_path / "snapshots")}
    with runtime(model, tmp_path, num_workers=2, router_flags=ROUTER_FLAGS, environment=environment) as made:
        yield made


@pytest.fixture
async def client(remembering: Runtime) -> AsyncIterator[kakeya.AsyncClient]:
    async with kakeya.AsyncClient(remembering.address) as client:
        yield client


async def conversation(session: kakeya.AsyncSession) -> list[int]:
    """Some turns; the history, of which a lane keeps a part."""
    history: list[int] = []
    for turn in range(NUM_TURNS):
        prompt = range(turn * 50, turn * 50 + 50)
        history += [*prompt, *await session.turn(prompt, **OPTIONS).all()]
    assert len(history) > 2 * (SINK + WINDOW)
    return history


async def answer_at(client: kakeya.AsyncClient, source: kakeya.AsyncSession, boundary: int) -> Said:
    async with await client.create_session(fork_from=source, boundary=boundary) as fork:
        return await said(fork)


async def test_forks_at_the_last_turns_answer_as_sessions_that_nothing_disturbed(
    remembering: Runtime, client: kakeya.AsyncClient
) -> None:
    source = await client.create_session()
    history = await conversation(source)
    boundaries = (await source.info()).boundaries
    assert boundaries == tuple(90 * turn for turn in range(3, NUM_TURNS + 1))
    expected: dict[int, Said] = {}
    for boundary in boundaries:
        async with await client.create_session() as undisturbed:
            await undisturbed.append(history[:boundary])
            expected[boundary] = await said(undisturbed)
    assert len({tuple(token for token, _ in answer) for answer in expected.values()}) == len(boundaries)

    for boundary in boundaries:
        assert await answer_at(client, source, boundary) == expected[boundary]
    many = [boundaries[number % len(boundaries)] for number in range(50)]
    answers = await asyncio.gather(*(answer_at(client, source, boundary) for boundary in many))
    assert answers == [expected[boundary] for boundary in many]
    assert (await source.info()).history_length == len(history)

    worker_id = (await source.info()).worker
    holder = next(each for each in remembering.workers if worker_id.endswith(each.address.split(":")[1]))
    os.kill(holder.process.pid, signal.SIGKILL)
    remembering.lapse(holder)

    async def is_parked() -> bool:
        return (await source.info()).state is kakeya.SessionState.PARKED

    await eventually(is_parked, "the source is parked")
    for boundary in boundaries[:-1]:
        assert await answer_at(client, source, boundary) == expected[boundary]
    assert await is_parked(), "nobody needed its lane"
    assert await answer_at(client, source, boundaries[-1]) == expected[boundaries[-1]]
    assert [session.id async for session in client.list_sessions()] == [source.id]
    assert await said(source) == expected[boundaries[-1]]
    await source.close()


async def test_any_length_that_is_journaled_can_be_branched_off_at(client: kakeya.AsyncClient) -> None:
    async with await client.create_session() as source, await client.create_session() as undisturbed:
        await source.append(range(200))
        await undisturbed.append(range(123))
        assert await answer_at(client, source, 123) == await said(undisturbed)
        with pytest.raises(kakeya.BoundaryNotReachable) as raised:
            await answer_at(client, source, 201)
        assert raised.value.metadata == {"reachable": "200"}
