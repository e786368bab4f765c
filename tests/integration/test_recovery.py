"""Processes die and stop in the middle of conversations; the tokens are those of a run that nothing disturbed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kakeya
from tests.integration.processes import Process, Runtime, eventually, runtime

ROUTER_FLAGS = (
    "--heartbeat-interval-seconds=0.3",
    "--worker-lease-seconds=2.5",
    "--operation-lease-seconds=1.5",
    "--reap-interval-seconds=0.2",
    "--recovery-seconds=0.1",
)
Disturb = Callable[[kakeya.AsyncSession], Awaitable[None]]

NUM_TOKENS = 300
OPTIONS: dict[str, Any] = {"temperature": 1.0, "seed": 11, "frequency_penalty": 0.5}


@pytest.fixture
def snapshots(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


@pytest.fixture
def fragile(model: Path, tmp_path: Path, snapshots: Path) -> Iterator[Runtime]:
    """Two workers with one snapshot store, and a router with short leases."""
    environment = {"KAKEYA_WORKER_SNAPSHOTS": str(snapshots), "KAKEYA_WORKER_SHUTDOWN_GRACE_SECONDS": "0.2"}
    with runtime(model, tmp_path, num_workers=2, router_flags=ROUTER_FLAGS, environment=environment) as made:
        yield made


@pytest.fixture
async def client(fragile: Runtime) -> AsyncIterator[kakeya.AsyncClient]:
    async with kakeya.AsyncClient(fragile.address) as client:
        yield client


async def converse(
    session: kakeya.AsyncSession, disturb: Callable[[kakeya.AsyncSession], Awaitable[None]] | None = None
) -> list[int]:
    """Three turns; the second is disturbed after its 40th token."""
    token_ids = []
    for turn in range(3):
        await session.append(range(turn * 50, turn * 50 + 50))
        async with session.generate(max_tokens=NUM_TOKENS, **OPTIONS) as generation:
            number = 0
            async for token_id in generation:
                token_ids.append(token_id)
                number += 1
                if disturb is not None and (turn, number) == (1, 40):
                    await disturb(session)
    return token_ids


class Disturbance:
    """Sends a signal to the worker that holds a session."""

    def __init__(self, fragile: Runtime, number: signal.Signals) -> None:
        self._fragile = fragile
        self._number = number
        self.worker: Process | None = None

    async def __call__(self, session: kakeya.AsyncSession) -> None:
        worker_id = (await session.info()).worker
        self.worker = next(each for each in self._fragile.workers if worker_id.endswith(each.address.split(":")[1]))
        os.kill(self.worker.process.pid, self._number)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM], ids=lambda number: number.name)
async def test_a_session_goes_on_with_the_same_tokens(
    fragile: Runtime, client: kakeya.AsyncClient, number: signal.Signals
) -> None:
    async with await client.create_session() as undisturbed:
        expected = await converse(undisturbed)
    assert len(set(expected)) > 50
    session = await client.create_session()
    disturb = Disturbance(fragile, number)
    try:
        assert await converse(session, disturb) == expected
        info = await session.info()
        assert (info.epoch, info.history_length) == (2, 3 * (50 + NUM_TOKENS))
        await session.close()
    finally:
        if number is signal.SIGSTOP and disturb.worker is not None:
            os.kill(disturb.worker.process.pid, signal.SIGCONT)
    if number is signal.SIGTERM and disturb.worker is not None:
        assert await asyncio.to_thread(disturb.worker.process.wait, 20) == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
async def test_a_client_goes_on_at_another_router(fragile: Runtime, number: signal.Signals) -> None:
    first, other = [fragile.start_router(*ROUTER_FLAGS, "--shutdown-grace-seconds=0.1") for _ in range(2)]
    async with kakeya.AsyncClient(f"ipv4:{first.address},{other.address}") as client:
        async with await client.create_session() as undisturbed:
            expected = await converse(undisturbed)

        async def end_router(session: kakeya.AsyncSession) -> None:
            os.kill(first.process.pid, number)

        async with await client.create_session() as session:
            assert await converse(session, end_router) == expected


async def test_what_is_taken_back_comes_again_with_the_same_tokens(
    fragile: Runtime, client: kakeya.AsyncClient
) -> None:
    """By the lane itself while nothing is forgotten, by snapshots and journal afterwards, on another worker too."""

    async def answer(session: kakeya.AsyncSession) -> list[int]:
        return await session.generate(max_tokens=60, **OPTIONS).all()

    async with await client.create_session() as session:
        ends, answers = [], []
        for turn in range(9):
            question = (await session.append(range(turn * 10, turn * 10 + 10))).history_length
            answers.append(await answer(session))
            await session.rewind(question)
            assert await answer(session) == answers[-1]
            ends.append(question + 60)
        forgotten = (await session.info()).num_forgotten_tokens
        assert forgotten is not None
        assert forgotten > 200
        for turn, kill in ((7, False), (6, True), (5, False)):
            if kill:
                await Disturbance(fragile, signal.SIGKILL)(session)
            assert (await session.rewind(ends[turn])).history_length == ends[turn]
            await session.append(range((turn + 1) * 10, (turn + 1) * 10 + 10))
            assert await answer(session) == answers[turn + 1]
            await session.rewind(ends[turn])
        with pytest.raises(kakeya.BoundaryNotReachable):
            await session.rewind(ends[1])


async def test_nothing_is_left_of_closed_sessions(
    fragile: Runtime, client: kakeya.AsyncClient, snapshots: Path
) -> None:
    sessions = [await client.create_session() for _ in range(3)]
    for session in sessions:
        await converse(session)
    assert _files(snapshots)
    for session in sessions:
        await session.close()

    async def no_files() -> bool:
        return not _files(snapshots)

    await eventually(no_files, "all snapshots are removed")
    assert sum(worker.reserved_bytes for worker in fragile.list_workers()) == 0


def _files(directory: Path) -> list[Path]:
    return list(directory.rglob("*.safetensors"))


async def test_a_restarted_redis_has_every_token(fragile: Runtime, client: kakeya.AsyncClient) -> None:
    session = await client.create_session()
    await session.append(range(30))
    async with session.generate(max_tokens=50, **OPTIONS) as generation:
        seen = [token_id async for token_id in generation]
    fragile.redis.kill()
    fragile.redis.start()
    for worker in fragile.workers:
        worker.kill()
    fragile.start_worker()
    async with await client.create_session() as other:
        await other.append([*range(30), *seen])
        async with other.generate(max_tokens=20, **OPTIONS) as generation:
            expected = [token_id async for token_id in generation]
    async with session.generate(max_tokens=20, **OPTIONS) as generation:
        assert [token_id async for token_id in generation] == expected
