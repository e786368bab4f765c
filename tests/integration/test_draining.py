"""Workers are emptied in the middle of conversations: no client sees an error, or a token that differs."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import kakeya
from tests.integration.processes import Process, Runtime, eventually, runtime

ROUTER_FLAGS = ("--heartbeat-interval-seconds=0.3", "--reap-interval-seconds=0.2")
NUM_TURNS, NUM_TOKENS = 3, 200
NUM_IDLE, NUM_BUSY = 3, 3
OPTIONS: dict[str, Any] = {"temperature": 1.0, "seed": 11, "frequency_penalty": 0.5}


@pytest.fixture(params=["600", "0.3"], ids=["streams_end", "streams_are_handed_over"])
def grace_seconds(request: pytest.FixtureRequest) -> str:
    """So long that a worker which waits for its end is noticed; so short that streams outlast it."""
    return str(request.param)


@pytest.fixture
def backend() -> str:
    return "torch"


@pytest.fixture
def two(model: Path, tmp_path: Path, grace_seconds: str, backend: str) -> Iterator[Runtime]:
    """A runtime with two workers and one snapshot store."""
    environment = {
        "KAKEYA_WORKER_SNAPSHOTS": str(tmp_path / "snapshots"),
        "KAKEYA_WORKER_SHUTDOWN_GRACE_SECONDS": grace_seconds,
        "KAKEYA_WORKER_BACKEND": backend,
    }
    with runtime(model, tmp_path, num_workers=2, router_flags=ROUTER_FLAGS, environment=environment) as made:
        yield made


@pytest.fixture
async def client(two: Runtime) -> AsyncIterator[kakeya.AsyncClient]:
    async with kakeya.AsyncClient(two.address) as client:
        yield client


class Conversation:
    """Turns of one session, of which all have the same tokens."""

    def __init__(self, session: kakeya.AsyncSession) -> None:
        self.session = session
        self.token_ids: list[int] = []
        self.under_way = asyncio.Event()

    async def turn(self) -> None:
        number = len(self.token_ids) // NUM_TOKENS
        start = number * 50 % 1000
        await self.session.append(range(start, start + 50))
        async with self.session.generate(max_tokens=NUM_TOKENS, **OPTIONS) as generation:
            async for token_id in generation:
                self.token_ids.append(token_id)
                if len(self.token_ids) % NUM_TOKENS > 20:
                    self.under_way.set()

    async def rest(self, num_turns: int = NUM_TURNS) -> None:
        """The turns that are left."""
        while len(self.token_ids) < num_turns * NUM_TOKENS:
            await self.turn()

    async def go_on(self, until: asyncio.Event) -> None:
        """Turn after turn, and one more."""
        while not until.is_set():
            await self.turn()
        await self.turn()

    async def worker(self) -> str:
        return (await self.session.info()).worker


async def undisturbed(client: kakeya.AsyncClient, num_turns: int = NUM_TURNS) -> list[int]:
    async with await client.create_session() as session:
        conversation = Conversation(session)
        await conversation.rest(num_turns)
    assert len(set(conversation.token_ids)) > 50
    return conversation.token_ids


async def conversations(client: kakeya.AsyncClient, number: int) -> list[Conversation]:
    """After a turn each."""
    made = [Conversation(await client.create_session()) for _ in range(number)]
    await asyncio.gather(*(each.turn() for each in made))
    for each in made:
        each.under_way.clear()
    return made


def process_of(two: Runtime, worker_id: str) -> Process:
    return next(each for each in two.workers if worker_id.endswith(each.address.split(":")[1]))


async def test_a_worker_that_is_stopped_leaves_nobody_behind(
    two: Runtime, client: kakeya.AsyncClient, grace_seconds: str
) -> None:
    expected = await undisturbed(client)
    everybody = await conversations(client, NUM_IDLE + NUM_BUSY)
    idle, busy = everybody[:NUM_IDLE], everybody[NUM_IDLE:]
    streams = [asyncio.create_task(each.turn()) for each in busy]
    for each in busy:
        await each.under_way.wait()
    stopped = process_of(two, await everybody[0].worker())
    on_it = [each for each in everybody if process_of(two, await each.worker()) is stopped]
    assert set(on_it) & set(idle)
    assert set(on_it) & set(busy)
    os.kill(stopped.process.pid, signal.SIGTERM)
    await asyncio.gather(*streams)
    assert await asyncio.to_thread(stopped.process.wait, 60) == 0, "long before a grace of 600 s is over"
    for each in on_it:
        if each in idle:
            assert (await each.session.info()).state is kakeya.SessionState.PARKED
    await asyncio.gather(*(each.rest() for each in everybody))
    for each in everybody:
        assert each.token_ids == expected
        info = await each.session.info()
        assert (info.history_length, info.epoch > 1) == (NUM_TURNS * (50 + NUM_TOKENS), each in on_it)
        await each.session.close()


async def test_a_worker_that_is_stopped_gives_way_to_a_new_one(two: Runtime, client: kakeya.AsyncClient) -> None:
    """As in a rolling restart: all old ones go, under load."""
    everybody = await conversations(client, NUM_BUSY)
    old, restarted = list(two.workers), asyncio.Event()
    for _ in old:
        two.start_worker()
    await asyncio.to_thread(two.wait_for_workers, 4)
    streams = [asyncio.create_task(each.go_on(restarted)) for each in everybody]
    for each in everybody:
        await each.under_way.wait()
    for process in old:
        os.kill(process.process.pid, signal.SIGTERM)
        assert await asyncio.to_thread(process.process.wait, 60) == 0
    restarted.set()
    await asyncio.gather(*streams)
    longest = max(len(each.token_ids) for each in everybody)
    expected = await undisturbed(client, longest // NUM_TOKENS)
    for each in everybody:
        assert each.token_ids == expected[: len(each.token_ids)]
        assert (await each.session.info()).epoch > 1
        await each.session.close()


@pytest.fixture
def apart(model: Path, tmp_path: Path) -> Iterator[Runtime]:
    """A runtime with two workers that have no snapshot store, and a router whose journals are soon full."""
    flags = (*ROUTER_FLAGS, "--max-append-tokens=50", "--journal-tokens=50")
    with runtime(model, tmp_path, num_workers=2, router_flags=flags) as made:
        yield made


async def test_without_a_store_sessions_move(apart: Runtime) -> None:
    """Nothing but their lanes has their histories."""
    async with kakeya.AsyncClient(apart.address) as client:
        expected = await undisturbed(client)
        everybody = await conversations(client, 4)
        idle, busy = everybody[:2], everybody[2:]
        streams = [asyncio.create_task(each.turn()) for each in busy]
        for each in busy:
            await each.under_way.wait()
        stopped = process_of(apart, await idle[0].worker())
        on_it = [each for each in everybody if process_of(apart, await each.worker()) is stopped]
        os.kill(stopped.process.pid, signal.SIGTERM)
        await idle[0].turn()  # its worker begins nothing any more, and may not have said so yet
        await asyncio.gather(*streams)
        assert await asyncio.to_thread(stopped.process.wait, 60) == 0
        for each in on_it:
            info = await each.session.info()
            assert (info.state, info.epoch > 1) == (kakeya.SessionState.OPEN, True)
        await asyncio.gather(*(each.rest() for each in everybody))
        assert [each.token_ids for each in everybody] == [expected] * 4


@pytest.mark.parametrize(
    ("grace_seconds", "backend"),
    [("1", "torch"), pytest.param("1", "mlx", marks=pytest.mark.heavy)],
    indirect=["grace_seconds"],
)
async def test_an_operator_empties_a_worker_while_it_works(two: Runtime, client: kakeya.AsyncClient) -> None:
    expected = await undisturbed(client)
    everybody = await conversations(client, NUM_IDLE + NUM_BUSY)
    busy = everybody[NUM_IDLE:]
    streams = [asyncio.create_task(each.turn()) for each in busy]
    for each in busy:
        await each.under_way.wait()
    drained = await everybody[0].worker()
    status, output = await command(two, "workers", "drain", drained, "--wait", "--timeout", "60s")
    assert status == 0, output
    assert output.startswith(f"draining {drained}, ")
    assert output.endswith(f"{drained} is empty\n")
    await asyncio.gather(*streams)
    (worker,) = [each for each in two.list_workers() if each.worker_id == drained]
    assert (worker.draining, worker.num_sessions) == (True, 0)
    await asyncio.gather(*(each.rest() for each in everybody))
    for each in everybody:
        assert each.token_ids == expected
        assert await each.worker() != drained
    assert (await command(two, "workers", "drain", drained, "--undo"))[0] == 0

    async def takes_sessions() -> bool:
        return (await (await client.create_session()).info()).worker == drained

    await eventually(takes_sessions, "it takes sessions again")


async def command(two: Runtime, *words: str) -> tuple[int, str]:
    """Exit status and output of `kakeya ...`."""
    run = [sys.executable, "-m", "kakeya", *words, "--address", two.address]
    done = await asyncio.to_thread(subprocess.run, run, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr
