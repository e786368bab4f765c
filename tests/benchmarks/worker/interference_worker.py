"""A worker's engine in a process of its own, driven from outside: a session that generates, and prefills."""

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise

from kakeya_bench.statistics.distribution import median, percentile
from kakeya_worker.loading import load_engine
from kakeya_worker.settings import WorkerSettings
from tests.benchmarks.worker.engine_session import EngineSession

NUM_CORES = 2
_WARM_SECONDS = 0.5  # of generating, before anything is measured


def started(flags: list[str]) -> ProcessPoolExecutor:
    """A process with an engine as `kakeya worker` makes it of these flags; all of them run on the same cores."""
    process = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_start, initargs=(flags,))
    process.submit(int).result()  # fails where the start did
    return process


# The rest runs in the process: in a session that lives as long, and whose window is full.

_session: EngineSession
_times: list[float] = []  # monotonic seconds of its tokens


def _start(flags: list[str]) -> None:
    global _session
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:NUM_CORES])
    engine = load_engine(WorkerSettings.parse(flags))
    engine.start()
    _session = EngineSession(engine, "g")
    _session.prefill(tuple(number % 97 for number in range(engine.lanes.geometry.capacity + 1)))


def shut_down() -> None:
    _session.engine.shut_down()


def num_generated(starts: float, seconds: float) -> int:
    """Tokens from a moment of the monotonic clock on, for so long."""
    _generate()
    time.sleep(starts + seconds - time.monotonic())
    _session.stop()
    return len(_between(starts, starts + seconds))


def interference(seconds: float, token_ids: tuple[int, ...]) -> dict[str, float]:
    """Generates alone for so long, half before and half after it does beside a prefill; then prefills alone.

    Returns:
        Milliseconds from one token to the next, and tokens a second of both at once and one after the other.
    """
    _generate()
    time.sleep(_WARM_SECONDS + seconds / 2)
    starts = time.monotonic()
    beside_seconds = _prefill(token_ids)
    ends = time.monotonic()
    time.sleep(seconds / 2)
    _session.stop()
    alone, beside = _gaps(starts - seconds / 2, starts) + _gaps(ends, ends + seconds / 2), _gaps(starts, ends)
    num_tokens = len(token_ids) + len(beside)
    apart = num_tokens / (_prefill(token_ids) + len(beside) * sum(alone) / len(alone))
    at_once = num_tokens / beside_seconds
    return {
        "alone_p50": median(alone) * 1e3,
        "alone_p95": percentile(alone, 95) * 1e3,
        "beside_p50": median(beside) * 1e3,
        "beside_p95": percentile(beside, 95) * 1e3,
        "p95_ratio": percentile(beside, 95) / percentile(alone, 95),
        "one_after_the_other": apart,
        "both_at_once": at_once,
        "throughput_ratio": at_once / apart,
    }


def _generate() -> None:
    _times.clear()
    _session.generate(lambda: _times.append(time.monotonic()))


def _prefill(token_ids: tuple[int, ...]) -> float:
    """Seconds that it takes, in a session of its own."""
    session = EngineSession(_session.engine, "p")
    seconds = session.prefill(token_ids)
    session.close()
    return seconds


def _between(starts: float, ends: float) -> list[float]:
    return [moment for moment in _times if starts <= moment < ends]


def _gaps(starts: float, ends: float) -> list[float]:
    return [later - earlier for earlier, later in pairwise(_between(starts, ends))]
