"""What a client notices when its worker is killed or stopped, and what it costs to have a long session again.

Where a window is larger than kakeya-nano's positions are, with random weights of the tests instead.

Exits with 1 when the longest gap in a stream, or the time of a resume, is beyond its bound.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kakeya
from kakeya_bench.report.quantities import Precise, Seconds
from kakeya_bench.report.verdict import Verdict, at_most
from kakeya_bench.statistics.distribution import median
from kakeya_shared import installed_models
from kakeya_shared.settings.service import setting
from tests import random_checkpoint
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchSettings, Found, Numbers, Stage
from tests.integration.processes import Process, Runtime, eventually, runtime, wait_until

MODEL, MODEL_POSITIONS = "kakeya-nano", 1024
KILLED_BOUND_SECONDS = 3.0
GIVEN_UP_SECONDS = 5.0  # 3 s of silence, seen within a second; and time to go on elsewhere
STOPPED_BOUND_SECONDS = GIVEN_UP_SECONDS + 2.0
RESUME_BOUND_RATIO = 1.2
SHORT_TOKENS, LONG_TOKENS = 100, 100_000
SINK = 4  # the worker's default
_APPEND_TOKENS = 50_000
_VOCABULARY = 512
_MAX_TOKENS = 4_000
_NUM_WARMING = 4  # more than one worker has lanes for
_REST_SECONDS = 1.0  # the last turn's snapshot is written then, whoever had it


class RecoverySettings(BenchSettings):
    rounds: int = setting(6, "rounds; a multiple of three is fair to all", reason="a median", metavar="N", ge=1)
    windows: Numbers = setting(
        (64, 2048), "windows, separated by commas", unit="tokens", reason="a small and a large one", metavar="64,2048"
    )


async def figures(made: Runtime, window: int, num_rounds: int, on_step: Callable[[str], None]) -> dict[str, Any]:
    """Kills and stops the worker of a session that generates, and then that of sessions at rest.

    Returns:
        Seconds, one number a round. The short history is shorter than the window may be, the full one just fills it: as
        much of it is kept as of the long one.
    """
    lengths = {"short_resumes": SHORT_TOKENS, "full_resumes": SINK + window, "long_resumes": LONG_TOKENS}
    taken: dict[str, list[Seconds]] = {name: [] for name in ("killed", "stopped", *lengths)}
    async with kakeya.AsyncClient(made.address) as client:
        for _ in range(num_rounds):
            taken["killed"].append(await longest_gap(made, client, lambda worker: _kill(made, worker, window)))
            taken["stopped"].append(await longest_gap(made, client, stop))
            on_step("streams whose worker is killed or stopped")
        sessions = [(name, await _filled(client, length)) for name, length in lengths.items()]
        for number in range(num_rounds):
            # Who comes first changes: each kill leaves workers of other ages to the next session.
            first = number % len(sessions)
            for name, session in sessions[first:] + sessions[:first]:
                taken[name].append(await _resume(made, client, session, window))
            on_step("resumes")
    short, full, long = (median(taken[name]) for name in lengths)
    return {"window": window, **taken, "resume_ratio": long / short, "full_ratio": long / full}


def verdicts(found: Mapping[str, Any]) -> list[Verdict]:
    """Of one window."""
    gate = f"window {found['window']}"
    return [
        at_most(f"{gate}, killed", "longest gap", max(found["killed"]), Seconds(KILLED_BOUND_SECONDS)),
        at_most(f"{gate}, stopped", "longest gap", max(found["stopped"]), Seconds(STOPPED_BOUND_SECONDS)),
        at_most(f"{gate}, resume", "long to short:", Precise(found["resume_ratio"]), Precise(RESUME_BOUND_RATIO)),
    ]


async def longest_gap(
    made: Runtime, client: kakeya.AsyncClient, disturb: Callable[[Process], Coroutine[object, object, None]]
) -> Seconds:
    """Between two tokens of a stream whose worker is disturbed after its 50th."""
    gaps: list[float] = []
    async with await client.create_session() as session:
        await session.append([token % _VOCABULARY for token in range(300)])
        async with session.generate(max_tokens=_MAX_TOKENS, temperature=1.0, seed=1) as generation:
            last = time.perf_counter()
            disturbing: asyncio.Task[None] | None = None
            async for _ in generation:
                now = time.perf_counter()
                gaps.append(now - last)
                last = now
                if len(gaps) == 50:
                    worker = await worker_of(made, session)
                    assert worker is not None, "it generates there"
                    disturbing = asyncio.create_task(disturb(worker))
                if disturbing is not None and max(gaps[50:], default=0.0) > 0.2 and len(gaps) > 200:
                    break
        if disturbing is not None:
            await disturbing
    return Seconds(max(gaps[50:]))


async def worker_of(made: Runtime, session: kakeya.AsyncSession) -> Process | None:
    """None: the session is parked."""
    worker_id = (await session.info()).worker
    address = {each.worker_id: each.address for each in await asyncio.to_thread(made.list_workers)}.get(worker_id)
    return next((worker for worker in made.workers if worker.address == address), None)


async def _kill(made: Runtime, worker: Process, window: int) -> None:
    """Another takes its place, so that there are two again."""
    await asyncio.to_thread(worker.kill)
    made.workers.remove(worker)
    successor = start_worker(made, window)
    await asyncio.to_thread(wait_until, lambda: successor.address in _addresses(made), "the worker joins")


def _addresses(made: Runtime) -> set[str]:
    return {each.address for each in made.list_workers()}


async def stop(worker: Process) -> None:
    os.kill(worker.process.pid, signal.SIGSTOP)
    await asyncio.sleep(STOPPED_BOUND_SECONDS + 1.0)
    os.kill(worker.process.pid, signal.SIGCONT)


async def _filled(client: kakeya.AsyncClient, num_tokens: int) -> kakeya.AsyncSession:
    session = await client.create_session()
    for start in range(0, num_tokens, _APPEND_TOKENS):
        await session.append([token % _VOCABULARY for token in range(start, min(num_tokens, start + _APPEND_TOKENS))])
    await session.generate(max_tokens=8).all()  # a turn has ended: a snapshot is written
    return session


async def _warm(client: kakeya.AsyncClient) -> None:
    """Uses both workers: the first call to a new one connects to it, and takes as long as all the rest of a resume."""
    others = [await client.create_session() for _ in range(_NUM_WARMING)]
    for other in others:
        await other.append([1])
        await other.generate(max_tokens=1).all()
        await other.close()


async def _resume(made: Runtime, client: kakeya.AsyncClient, session: kakeya.AsyncSession, window: int) -> Seconds:
    """Of the first token after the worker of a session at rest has died, and everybody knows it."""
    await asyncio.sleep(_REST_SECONDS)
    if (worker := await worker_of(made, session)) is not None:  # it may have died with another's
        await _kill(made, worker, window)

    async def is_parked() -> bool:
        return (await session.info()).state is kakeya.SessionState.PARKED

    await eventually(is_parked, "the session is parked")
    await _warm(client)
    started = time.perf_counter()
    await session.generate(max_tokens=1).all()
    return Seconds(time.perf_counter() - started)


@contextmanager
def two_workers(window: int, directory: Path) -> Iterator[Runtime]:
    """A runtime that keeps snapshots; its model has room for the window."""
    directory.mkdir()
    if SINK + window <= MODEL_POSITIONS:
        model = installed_models.directory(MODEL)
    else:
        model = random_checkpoint.save_random_checkpoint(directory / "model")
    environment = {"KAKEYA_WORKER_SNAPSHOTS": f"{directory}/snapshots"}
    with runtime(model, directory, num_workers=0, environment=environment) as made:
        for _ in range(2):
            start_worker(made, window)
        made.wait_for_workers(2)
        yield made


def start_worker(made: Runtime, window: int, address: str = "") -> Process:
    return made.start_worker("--window", str(window), lanes=4, address=address)


@bench.command(RecoverySettings)
def measure(settings: RecoverySettings, stage: Stage) -> Found:
    step, found = stage.steps(2 * settings.rounds * len(settings.windows)), []
    for window in settings.windows:
        with two_workers(window, stage.directory / str(window)) as made:
            found.append(asyncio.run(figures(made, window, settings.rounds, step)))
    return {"windows": found}, [verdict for each in found for verdict in verdicts(each)]
