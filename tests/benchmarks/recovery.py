"""What a client notices when its worker is killed or stopped, and what it costs to have a long session again.

    python -m tests.benchmarks.recovery [--rounds N] [--windows 64,2048] [--json FILE]

Where a window is larger than kakeya-nano's positions are, with random weights of the tests instead.

Exits with 1 when the longest gap in a stream, or the time of a resume, is beyond its bound.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, field
from pathlib import Path

import kakeya
from kakeya_shared import installed_models
from tests import random_checkpoint
from tests.integration.processes import Process, Runtime, eventually, runtime, wait_until

MODEL, MODEL_POSITIONS = "kakeya-nano", 1024
KILLED_BOUND_SECONDS = 3.0
LEASE_SECONDS = 5.0  # the router's default
STOPPED_BOUND_SECONDS = LEASE_SECONDS + 2.0
RESUME_BOUND_RATIO = 1.2
SHORT_TOKENS, LONG_TOKENS = 100, 100_000
SINK = 4  # the worker's default
_APPEND_TOKENS = 50_000
_VOCABULARY = 512
_MAX_TOKENS = 4_000
_NUM_WARMING = 4  # more than one worker has lanes for
_REST_SECONDS = 1.0  # the last turn's snapshot is written then, whoever had it


@dataclass
class Figures:
    """Of one window, in seconds; one number a round. The short history is shorter than the window may be, the full one
    just fills it: as much of it is kept as of the long one.
    """

    window: int
    killed: list[float] = field(default_factory=list)
    stopped: list[float] = field(default_factory=list)
    short_resumes: list[float] = field(default_factory=list)
    full_resumes: list[float] = field(default_factory=list)
    long_resumes: list[float] = field(default_factory=list)

    @property
    def resume_ratio(self) -> float:
        return statistics.median(self.long_resumes) / statistics.median(self.short_resumes)

    @property
    def full_ratio(self) -> float:
        return statistics.median(self.long_resumes) / statistics.median(self.full_resumes)

    @property
    def is_within_bounds(self) -> bool:
        return (
            max(self.killed) <= KILLED_BOUND_SECONDS
            and max(self.stopped) <= STOPPED_BOUND_SECONDS
            and self.resume_ratio <= RESUME_BOUND_RATIO
        )


async def measure(made: Runtime, window: int, num_rounds: int) -> Figures:
    """Kills and stops the worker of a session that generates, and then that of sessions at rest."""
    figures = Figures(window)
    async with kakeya.AsyncClient(made.address) as client:
        for _ in range(num_rounds):
            figures.killed.append(await longest_gap(made, client, lambda worker: _kill(made, worker, window)))
            figures.stopped.append(await longest_gap(made, client, stop))
        resumes = {
            SHORT_TOKENS: figures.short_resumes,
            SINK + window: figures.full_resumes,
            LONG_TOKENS: figures.long_resumes,
        }
        sessions = {num_tokens: await client.create_session() for num_tokens in resumes}
        for num_tokens, session in sessions.items():
            await _fill(session, num_tokens)
        for number in range(num_rounds):
            for num_tokens in _rotated(list(resumes), number):
                resumes[num_tokens].append(await _resume(made, client, sessions[num_tokens], window))
    return figures


def _rotated(lengths: list[int], number: int) -> list[int]:
    """Who comes first changes from round to round: each kill leaves workers of other ages to the next session."""
    first = number % len(lengths)
    return lengths[first:] + lengths[:first]


async def longest_gap(
    made: Runtime, client: kakeya.AsyncClient, disturb: Callable[[Process], Coroutine[object, object, None]]
) -> float:
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
    return max(gaps[50:])


async def worker_of(made: Runtime, session: kakeya.AsyncSession) -> Process | None:
    """None: the session is parked."""
    worker_id = (await session.info()).worker
    addresses = {worker.worker_id: worker.address for worker in await asyncio.to_thread(made.list_workers)}
    return next((worker for worker in made.workers if worker.address == addresses.get(worker_id)), None)


async def _kill(made: Runtime, worker: Process, window: int) -> None:
    """Another takes its place, so that there are two again."""
    await asyncio.to_thread(worker.kill)
    made.workers.remove(worker)
    successor = start_worker(made, window)
    await asyncio.to_thread(wait_for, made, successor)


async def stop(worker: Process) -> None:
    os.kill(worker.process.pid, signal.SIGSTOP)
    await asyncio.sleep(STOPPED_BOUND_SECONDS + 1.0)
    os.kill(worker.process.pid, signal.SIGCONT)


async def _fill(session: kakeya.AsyncSession, num_tokens: int) -> None:
    for start in range(0, num_tokens, _APPEND_TOKENS):
        end = min(num_tokens, start + _APPEND_TOKENS)
        await session.append([token % _VOCABULARY for token in range(start, end)])
    await session.generate(max_tokens=8).all()  # a turn has ended: a snapshot is written


async def _warm(client: kakeya.AsyncClient) -> None:
    """Uses both workers: the first call to a new one connects to it, and takes as long as all the rest of a resume."""
    others = [await client.create_session() for _ in range(_NUM_WARMING)]
    for other in others:
        await other.append([1])
        await other.generate(max_tokens=1).all()
        await other.close()


async def _resume(made: Runtime, client: kakeya.AsyncClient, session: kakeya.AsyncSession, window: int) -> float:
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
    return time.perf_counter() - started


def model(window: int, directory: Path) -> Path:
    if SINK + window <= MODEL_POSITIONS:
        return installed_models.directory(MODEL)
    return random_checkpoint.save_random_checkpoint(directory / "model")


def start_worker(made: Runtime, window: int) -> Process:
    return made.start_worker("--window", str(window), lanes=4)


def wait_for(made: Runtime, worker: Process) -> None:
    wait_until(lambda: worker.address in {each.address for each in made.list_workers()}, "the worker joins")


def show(figures: Figures) -> None:
    print(f"window {figures.window}: {'kept' if figures.is_within_bounds else 'BROKEN'}")
    print(f"  longest gap, killed   {_seconds(figures.killed)}; bound {KILLED_BOUND_SECONDS:g} s")
    print(f"  longest gap, stopped  {_seconds(figures.stopped)}; bound {STOPPED_BOUND_SECONDS:g} s")
    print(f"  resume at {SHORT_TOKENS:7,} tokens  {_milliseconds(figures.short_resumes)}")
    print(f"  resume at {SINK + figures.window:7,} tokens  {_milliseconds(figures.full_resumes)}")
    print(f"  resume at {LONG_TOKENS:7,} tokens  {_milliseconds(figures.long_resumes)}")
    print(f"  the last to the first {figures.resume_ratio:.2f}; bound {RESUME_BOUND_RATIO:g}")
    print(f"  to the one between    {figures.full_ratio:.2f}")


def _seconds(times: list[float]) -> str:
    return f"median {statistics.median(times):.2f} s, max {max(times):.2f} s"


def _milliseconds(times: list[float]) -> str:
    return f"median {1e3 * statistics.median(times):.1f} ms, max {1e3 * max(times):.1f} ms"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6, help="a multiple of three is fair to all (default: 6)")
    parser.add_argument("--windows", default="64,2048")
    parser.add_argument("--json", type=Path, default=None, help="where to write the figures")
    arguments = parser.parse_args()
    found = []
    for window in map(int, arguments.windows.split(",")):
        with tempfile.TemporaryDirectory() as directory:
            environment = {"KAKEYA_WORKER_SNAPSHOTS": f"{directory}/snapshots"}
            with runtime(
                model(window, Path(directory)), Path(directory), num_workers=0, environment=environment
            ) as made:
                for _ in range(2):
                    start_worker(made, window)
                made.wait_for_workers(2)
                found.append(asyncio.run(measure(made, window, arguments.rounds)))
        show(found[-1])
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(figures) for figures in found], indent=1))
    return 0 if all(figures.is_within_bounds for figures in found) else 1


if __name__ == "__main__":
    sys.exit(main())
