"""A worker's engine in a process of its own, driven from outside: a session that generates, and prefills."""

import multiprocessing
import os
import time
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise

from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.operation import Append, Generate
from kakeya_worker.engine.sampling.sampling import Sampling, TokenDetail
from kakeya_worker.engine.seams.retention import SessionOptions
from kakeya_worker.program import load_engine
from kakeya_worker.settings import WorkerSettings

NUM_CORES = 2
ENDLESS = 10**6  # tokens
TIMEOUT_SECONDS = 3600.0
_WARM_SECONDS = 0.5  # of generating, before anything is measured


@dataclass(frozen=True)
class Interference:
    """A session that generates and a prefill: each alone, and both at once.

    Attributes:
        alone_gaps: seconds from one token to the next.
        beside_gaps: likewise while the prefill runs.
        alone_prefill_seconds: of the whole prefill.
        beside_prefill_seconds: likewise while the session generates.
    """

    alone_gaps: list[float]
    beside_gaps: list[float]
    alone_prefill_seconds: float
    beside_prefill_seconds: float


class WorkerProcess:
    """An engine as `kakeya worker` makes it; all of them run on the same cores.

    Args:
        flags: of `kakeya worker`.
    """

    def __init__(self, flags: list[str]) -> None:
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _start, (flags,))
        self._pool.submit(_wait_until_started).result(TIMEOUT_SECONDS)

    def interference(self, seconds: float, prefill: tuple[int, ...]) -> Interference:
        """Generates alone for so long, half before and half after it does beside the prefill; then prefills alone."""
        return self._pool.submit(_interference, seconds, prefill).result(TIMEOUT_SECONDS)

    def generate(self, starts: float, seconds: float) -> "Future[int]":
        """The number of tokens from a moment of the monotonic clock on, for so long."""
        return self._pool.submit(_generate, starts, seconds)

    def shut_down(self) -> None:
        self._pool.submit(_shut_down).result(TIMEOUT_SECONDS)
        self._pool.shutdown()


# The rest runs in the process.


@dataclass
class _GeneratingSession:
    """One session for the process's life, whose window is full.

    Attributes:
        times: monotonic seconds of its tokens.
    """

    engine: Engine
    length: int = 0
    times: list[float] = field(default_factory=list)

    def open(self) -> None:
        self.engine.open("g", 1, SessionOptions()).result(TIMEOUT_SECONDS)
        prompt = tuple(number % 97 for number in range(self.engine.lanes.geometry.capacity + 1))
        append = Append("g", 1, 0, prompt)
        self.engine.submit(append)
        self.length = append.future.result(TIMEOUT_SECONDS).lane.history_length

    def start(self) -> None:
        def read(token_id: int, detail: TokenDetail | None) -> None:
            self.times.append(time.monotonic())
            self.engine.acknowledge(generate, generate.num_generated)

        self.times.clear()
        generate = Generate(
            "g",
            1,
            self.length,
            max_tokens=ENDLESS,
            eos_token_ids=frozenset(),
            sampling=Sampling(),
            on_token=read,
        )
        self.engine.submit(generate)

    def stop(self) -> None:
        self.length = self.engine.stop_operation("g", 1).result(TIMEOUT_SECONDS).state.history_length

    def between(self, starts: float, ends: float) -> list[float]:
        return [moment for moment in self.times if starts <= moment < ends]


_session: _GeneratingSession


def _start(flags: list[str]) -> None:
    global _session
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:NUM_CORES])
    engine = load_engine(WorkerSettings.parse(flags))
    engine.start()
    _session = _GeneratingSession(engine)
    _session.open()


def _wait_until_started() -> None:
    """Runs after `_start`, and fails where that failed."""


def _interference(seconds: float, prefill: tuple[int, ...]) -> Interference:
    _session.start()
    time.sleep(_WARM_SECONDS + seconds / 2)
    starts = time.monotonic()
    beside_seconds = _prefill(prefill)
    ends = time.monotonic()
    time.sleep(seconds / 2)
    _session.stop()
    alone = [_session.between(starts - seconds / 2, starts), _session.between(ends, ends + seconds / 2)]
    beside = _session.between(starts, ends)
    return Interference([*_gaps(alone[0]), *_gaps(alone[1])], _gaps(beside), _prefill(prefill), beside_seconds)


def _prefill(token_ids: tuple[int, ...]) -> float:
    """Seconds that it takes, in a session of its own."""
    engine = _session.engine
    engine.open("p", 1, SessionOptions()).result(TIMEOUT_SECONDS)
    append = Append("p", 1, 0, token_ids)
    engine.submit(append)
    seconds = append.future.result(TIMEOUT_SECONDS).prefill_seconds
    engine.close("p", 1).result(TIMEOUT_SECONDS)
    return seconds


def _generate(starts: float, seconds: float) -> int:
    _session.start()
    time.sleep(starts + seconds - time.monotonic())
    _session.stop()
    return len(_session.between(starts, starts + seconds))


def _gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


def _shut_down() -> None:
    _session.engine.shut_down()
