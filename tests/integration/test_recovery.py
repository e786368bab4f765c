"""Processes die and stop in the middle of conversations; the tokens are those of a run that nothing disturbed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kakeya
from tests import nano_gguf
from tests.integration.processes import LONG_SECONDS, Process, Runtime, eventually, runtime

ROUTER_FLAGS = ("--heartbeat-interval-seconds=0.3", "--reap-interval-seconds=0.2", "--recovery-seconds=0.1")
Disturb = Callable[[kakeya.AsyncSession], Awaitable[None]]

NUM_TOKENS = 300
OPTIONS: dict[str, Any] = {"temperature": 1.0, "seed": 11, "frequency_penalty": 0.5}


@pytest.fixture
def snapshots(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


@pytest.fixture
def backend() -> str:
    return "torch"


@pytest.fixture
def weights() -> str:
    return "auto"


@pytest.fixture
def fragile(model: Path, tmp_path: Path, snapshots: Path, backend: str, weights: str) -> Iterator[Runtime]:
    """Two workers with one snapshot store."""
    if weights == "gguf":
        model = nano_gguf.write(tmp_path / "nano.gguf", "Q4_1")
    environment = {
        "KAKEYA_WORKER_SNAPSHOTS": str(snapshots),
        "KAKEYA_WORKER_SHUTDOWN_GRACE_SECONDS": "0.2",
        "KAKEYA_WORKER_BACKEND": backend,
        "KAKEYA_WORKER_WEIGHTS": weights,
    }
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
        if self._number is signal.SIGSTOP:
            self._fragile.lapse(self.worker)


@pytest.mark.parametrize(
    ("backend", "weights", "number"),
    [
        ("torch", "auto", signal.SIGKILL),
        ("torch", "auto", signal.SIGSTOP),
        ("torch", "auto", signal.SIGTERM),
        pytest.param("torch", "gguf", signal.SIGKILL, marks=pytest.mark.heavy),
        pytest.param("torch", "gguf", signal.SIGTERM, marks=pytest.mark.heavy),
        pytest.param("mlx", "auto", signal.SIGKILL, marks=pytest.mark.heavy),
        pytest.param("mlx", "auto", signal.SIGTERM, marks=pytest.mark.heavy),
    ],
    ids=lambda value: getattr(value, "name", value),
)
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
        assert info.epoch > 1
        assert info.history_length == 3 * (50 + NUM_TOKENS)
        await session.close()
    finally:
        if number is signal.SIGSTOP and disturb.worker is not None:
            os.kill(disturb.worker.process.pid, signal.SIGCONT)
    if number is signal.SIGTERM and disturb.worker is not None:
        assert await asyncio.to_thread(disturb.worker.process.wait, LONG_SECONDS) == 0


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


@pytest.mark.heavy
async def test_forks_outlive_all_workers_before_their_first_turn(
    fragile: Runtime, client: kakeya.AsyncClient, snapshots: Path
) -> None:
    """Their source is closed, and none of them has a file of its own: at the source's end, at the end of an earlier
    turn, within a turn, and each of them forked once more.
    """

    async def answer(session: kakeya.AsyncSession) -> list[int]:
        return await session.turn(range(7), max_tokens=60, **OPTIONS).all()

    source = await client.create_session()
    for turn in range(6):
        await source.turn(range(turn * 50, turn * 50 + 50), max_tokens=40, **OPTIONS).all()
    boundaries = (await source.info()).boundaries
    forks, undisturbed = [], []
    for boundary in (None, boundaries[1], boundaries[-1] - 11):
        fork = await client.create_session(fork_from=source, boundary=boundary)
        forks += [fork, await client.create_session(fork_from=fork)]
        async with await client.create_session(fork_from=source, boundary=boundary) as other:
            undisturbed += [await answer(other)] * 2
    assert len(set(map(tuple, undisturbed))) == 3
    await source.close()
    assert not [path for path in _files(snapshots) if any(fork.id in path.name for fork in forks)]
    for worker in fragile.workers:
        worker.kill()
    for _ in range(2):
        fragile.start_worker()
    assert [await answer(fork) for fork in forks] == undisturbed


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


NUM_SESSIONS = 4


class Conversation:
    """One of several that differ; three turns.

    Attributes:
        token_ids: all that came.
        acknowledged_length: of the history, by the last append and answer that came to their end.
        num_answers: that did.
    """

    def __init__(self, session: kakeya.AsyncSession, number: int) -> None:
        self.session = session
        self._number = number
        self.token_ids: list[int] = []
        self.acknowledged_length = self.num_answers = 0

    async def hold(self) -> None:
        for turn in range(3):
            first = 100 * self._number + 25 * turn
            self.acknowledged_length = (await self.session.append(range(first, first + 50))).history_length
            async with self.session.generate(max_tokens=NUM_TOKENS, temperature=1.0, seed=self._number) as generation:
                async for token_id in generation:
                    self.token_ids.append(token_id)
            self.acknowledged_length += NUM_TOKENS
            self.num_answers += 1


@pytest.mark.timeout(120)
async def test_a_restarted_redis_has_every_token(fragile: Runtime, client: kakeya.AsyncClient) -> None:
    """It is killed in the middle of answers, and all workers with it: nobody else knows the tokens any more."""
    undisturbed, disturbed = [
        [Conversation(await client.create_session(), number) for number in range(NUM_SESSIONS)] for _ in range(2)
    ]
    await asyncio.gather(*(each.hold() for each in undisturbed))
    assert len({tuple(each.token_ids) for each in undisturbed}) == NUM_SESSIONS
    for each in undisturbed:
        await each.session.close()

    async def all_have_an_answer() -> bool:
        return all(each.num_answers for each in disturbed)

    async with asyncio.TaskGroup() as holding:
        for each in disturbed:
            holding.create_task(each.hold())
        await eventually(all_have_an_answer, "each has an answer")
        assert any(each.num_answers < 3 for each in disturbed), "others are under way"
        fragile.redis.kill()
        for worker in fragile.workers:
            worker.kill()
        acknowledged = [each.acknowledged_length for each in disturbed]
        fragile.redis.start()
        for each, length in zip(disturbed, acknowledged, strict=True):
            assert (await each.session.info()).history_length >= length
        for _ in range(2):
            fragile.start_worker()
    for each, other in zip(disturbed, undisturbed, strict=True):
        assert each.token_ids == other.token_ids
        assert (await each.session.info()).history_length == 3 * (50 + NUM_TOKENS)
