"""What snapshots cost: bytes on disk, a parked session's return beside a prefill, and others' tokens meanwhile.

    python -m tests.benchmarks.snapshots [--json FILE] [--model DIR] [--window W] [--lengths 1,10,...] [--tokens N]
                                         [--rounds N] [--seconds S]

On a runtime of real processes; the model has Qwen3-0.6B's shape and random weights, in int8, and a window that keeps
all of the session that is parked. Every file that the router has written, and a whole one at every length, is held to
the KV bytes of the tokens in it. A session is prefilled, parked and resumed, several times over. Then one generates, by
turns alone and while the worker writes snapshots of another one, as often as the router would have it: see `Writer`.
Exits with 1 where a bound is missed.
"""

import argparse
import json
import math
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

import kakeya
from tests.benchmarks import qwen3_session, snapshot_figures
from tests.benchmarks.snapshot_figures import Decodes, Figures, Resumes, Size
from tests.benchmarks.snapshot_writer import Store, Writer
from tests.checkpoints import save_random_qwen3
from tests.integration.processes import Runtime, runtime, wait_until

SINK, WINDOW = 4, 4_092
LENGTHS = (1, 10, 63, 100, 1_000, 4_000, 10_000)
NUM_TOKENS = 4_000
# A long append is not written while it is prefilled, where no more than the last turn would be lost by it: prefills are
# measured by themselves.
ROUTER_FLAGS = ("--recovery-seconds=1000",)
_NUM_LANES = 3
_MANY_TOKENS = 60_000


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes:
        lengths: of a history, ascending, at which files are looked at.
        num_tokens: of the sessions that are parked.
        seconds: of a stretch of generating.
    """

    sink: int = SINK
    window: int = WINDOW
    lengths: tuple[int, ...] = LENGTHS
    num_tokens: int = NUM_TOKENS
    num_rounds: int = 3
    seconds: float = 5.0


class Bench:
    """Measures on one runtime.

    Args:
        vocabulary: token ids are below it.
    """

    def __init__(self, client: kakeya.Client, store: Store, plan: Plan, vocabulary: int, progress: Progress) -> None:
        self._client = client
        self._store = store
        self._plan = plan
        self._random = np.random.default_rng(0)
        self._vocabulary = vocabulary
        self._progress = progress

    def run(self) -> Figures:
        sizes, resumes = self.sizes(), self.resumes()
        return Figures(sizes, resumes, self.decodes(resumes.prefill_tokens_per_second))

    def sizes(self) -> list[Size]:
        """Of a session that grows: of what its turns wrote, and of all it kept, at each length."""
        plan, seen = self._plan, dict[str, Size]()
        geometry = plan.sink, plan.window, self._store.kv_bytes_per_token()
        with self._client.create_session() as session:
            for length in self._progress.track(plan.lengths, description="sizes"):
                more = length - (session.history_length or 0)
                session.append(self._tokens(max(1, more - 1)))  # before the first answer there has to be a token
                if more > 1:
                    session.generate(max_tokens=1).all()
                    self._store.await_length(session)
                with self._store.written(session) as whole:
                    seen |= {path.name: Size.of(path, *geometry) for path in {whole, *self._store.files(session)}}
        return sorted(seen.values(), key=lambda size: (size.length, size.start))

    def resumes(self) -> Resumes:
        """Of sessions that are prefilled, written at their turn's end, parked, and asked again."""
        found = Resumes(self._plan.num_tokens)
        for _ in self._progress.track(range(self._plan.num_rounds), description="park and resume"):
            token_ids = self._tokens(self._plan.num_tokens)
            started = time.perf_counter()
            with self._client.create_session() as session:
                session.append(token_ids)
                found.prefill.append(_first_token(session) - started)
                self._store.await_length(session)
                found.write.append(self._write_seconds(session))
                started = time.perf_counter()
                session.park()
                parked = time.perf_counter()
                found.park.append(parked - started)
                found.resume.append(_first_token(session) - parked)
        return found

    def _write_seconds(self, session: kakeya.Session) -> float:
        started = time.perf_counter()
        with self._store.written(session):
            return time.perf_counter() - started

    def decodes(self, prefill_tokens_per_second: float) -> Decodes:
        """Of a session whose window is full, as is that of the one which is written; pairs of stretches in turn."""
        found = Decodes()
        with self._client.create_session() as written:
            written.append(self._tokens(self._plan.num_tokens))
            with self._client.create_session(fork_from=written) as generating:
                generating.generate(max_tokens=1).all()
                self._store.await_length(generating)
                writer = Writer(self._store, written, self._plan.sink + self._plan.window, prefill_tokens_per_second)
                num_pairs = max(2, math.ceil(writer.cycle_seconds / self._plan.seconds))
                with Decoding(generating) as decoding:
                    for number in self._progress.track(range(num_pairs), description="decode"):
                        self._pair(found, decoding, writer, writes_first=number % 2 == 1)
                found.written_bytes = writer.written_bytes
        return found

    def _pair(self, found: Decodes, decoding: "Decoding", writer: "Writer", *, writes_first: bool) -> None:
        for writes in (writes_first, not writes_first):
            started = time.perf_counter()
            if writes:
                writer.run(self._plan.seconds)
            else:
                time.sleep(self._plan.seconds)
            (found.beside if writes else found.alone).append(decoding.gaps(started, time.perf_counter()))

    def _tokens(self, number: int) -> list[int]:
        token_ids: list[int] = self._random.integers(self._vocabulary, size=number).tolist()
        return token_ids


def _first_token(session: kakeya.Session) -> float:
    """When it came."""
    with session.generate(max_tokens=1) as generation:
        stream = iter(generation)
        next(stream)
        came = time.perf_counter()
        for _ in stream:
            raise AssertionError("one token was asked for")
    return came


class Decoding:
    """A session that generates until the end. Use as a context manager."""

    def __init__(self, session: kakeya.Session) -> None:
        self._session = session
        self._times: list[float] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._generate)

    def __enter__(self) -> "Decoding":
        self._thread.start()
        wait_until(lambda: len(self._times) > 2, "the session generates")
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def gaps(self, started: float, ended: float) -> list[float]:
        """Seconds from one token to the next, of those that came between two moments."""
        return [later - earlier for earlier, later in pairwise(self._times) if started <= later < ended]

    def _generate(self) -> None:
        with self._session.generate(max_tokens=_MANY_TOKENS) as generation:
            for _ in generation:
                self._times.append(time.perf_counter())
                if self._ends.is_set():
                    break


def measure(model: Path, directory: Path, plan: Plan, progress: Progress) -> Figures:
    """On a stack of its own."""
    store = directory / "snapshots"
    environment = {"KAKEYA_WORKER_SNAPSHOTS": str(store), "KAKEYA_WORKER_CACHE_DIR": str(directory / "cache")}
    with runtime(model, directory, num_workers=0, router_flags=ROUTER_FLAGS, environment=environment) as made:
        _start(made, plan)
        vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
        with kakeya.Client(made.address) as client:
            worker = Store(store, made.workers[0].address)
            try:
                return Bench(client, worker, plan, vocabulary, progress).run()
            finally:
                worker.close()


def _start(made: Runtime, plan: Plan) -> None:
    """A worker in exact mode, on all cores."""
    threads = str(len(os.sched_getaffinity(0)))
    shape = ("--sink", str(plan.sink), "--window", str(plan.window), "--threads", threads)
    made.start_worker("--weights", "int8", *shape, lanes=_NUM_LANES)
    wait_until(lambda: len(made.list_workers()) == 1, "the worker has joined", 300.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    parser.add_argument("--model", type=Path, metavar="DIR", help="(default: a random one of Qwen3-0.6B's shape)")
    parser.add_argument("--window", type=int, default=WINDOW, help=f"beside {SINK} sinks (default: {WINDOW})")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="of files (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=NUM_TOKENS, help=f"to resume (default: {NUM_TOKENS})")
    parser.add_argument("--rounds", type=int, default=3, help="of park and resume (default: 3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a stretch of generating (default: 5)")
    arguments = parser.parse_args()
    lengths = tuple(sorted(map(int, arguments.lengths.split(","))))
    plan = Plan(SINK, arguments.window, lengths, arguments.tokens, arguments.rounds, arguments.seconds)
    with (
        tempfile.TemporaryDirectory() as directory,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        model = arguments.model or save_random_qwen3(
            Path(directory) / "model", dtype=torch.bfloat16, **qwen3_session.SHAPE
        )
        figures = measure(model, Path(directory), plan, progress)
    snapshot_figures.show(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(snapshot_figures.as_dict(figures), indent=2) + "\n")
    return 0 if figures.is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
