"""What snapshots cost: bytes on disk, a parked session's return beside a prefill, and others' tokens meanwhile.

On a runtime of real processes; the model has Qwen3-0.6B's shape and random weights, in int8, and a window that keeps
all of the session that is parked. Every file that the router has written, and a whole one at every length, is held to
the KV bytes of the tokens in it. A session is prefilled, parked and resumed, several times over. Then one generates, by
turns alone and while the worker writes snapshots of another one, as often as the router would have it: see `Writer`.
Exits with 1 where a bound is missed.
"""

import json
import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np

import kakeya
from kakeya_bench.report.verdict import exit_status
from kakeya_bench.statistics.distribution import median
from kakeya_shared.settings.service import setting
from tests.benchmarks import bench
from tests.benchmarks.bench import Found, Numbers, Stage
from tests.benchmarks.models import ModelSettings, num_threads
from tests.benchmarks.pairs import in_turn
from tests.benchmarks.sessions import snapshot_figures
from tests.benchmarks.sessions.snapshot_figures import Store, Writer
from tests.integration.processes import runtime, wait_until

SINK = 4
# A long append is not written while it is prefilled, where no more than the last turn would be lost by it: prefills are
# measured by themselves.
ROUTER_FLAGS = ("--recovery-seconds=1000",)
_NUM_LANES = 3
_MANY_TOKENS = 60_000


class SnapshotSettings(ModelSettings):
    window: int = setting(4_092, f"window, beside {SINK} sinks", unit="tokens", reason="all of what is parked", ge=1)
    lengths: Numbers = setting(
        (1, 10, 63, 100, 1_000, 4_000, 10_000),
        "of a history, ascending, separated by commas, at which files are looked at",
        unit="tokens",
        reason="below, at and beyond the window",
        metavar="1,10,...",
    )
    tokens: int = setting(4_000, "of the sessions that are parked", unit="tokens", reason="a long prefill", ge=1)
    rounds: int = setting(3, "rounds of park and resume", reason="a median", metavar="N", ge=1)
    seconds: float = setting(5.0, "of a stretch of generating", unit="seconds", reason="a hundred tokens", gt=0)


class Bench:
    """Measures on one runtime.

    Args:
        vocabulary: token ids are below it.
    """

    def __init__(
        self, client: kakeya.Client, store: Store, settings: SnapshotSettings, vocabulary: int, stage: Stage
    ) -> None:
        self._client = client
        self._store = store
        self._settings = settings
        self._random = np.random.default_rng(0)
        self._vocabulary = vocabulary
        self._stage = stage

    def run(self) -> Found:
        sizes, resumes = self.sizes(), self.resumes()
        decodes = self.decodes(self._settings.tokens / median(resumes["prefill"]))
        verdicts = snapshot_figures.verdicts(sizes, resumes, decodes)
        document = {
            "sizes": sizes,
            "most_beyond": {"ratio": snapshot_figures.MOST_BEYOND_RATIO, "bytes": snapshot_figures.MOST_BEYOND_BYTES},
            "resumes": resumes,
            "least_resume_ratio": snapshot_figures.LEAST_RESUME_RATIO,
            "decodes": decodes,
            "most_slowdown": snapshot_figures.MOST_SLOWDOWN,
            "is_kept": exit_status(verdicts) == 0,
        }
        return document, verdicts

    def sizes(self) -> list[dict[str, Any]]:
        """Of a session that grows: of what its turns wrote, and of all it kept, at each length."""
        lengths, seen = sorted(self._settings.lengths), dict[str, dict[str, Any]]()
        geometry = SINK, self._settings.window, self._store.kv_bytes_per_token()
        step = self._stage.steps(len(lengths), start=0.1, end=0.3)
        with self._client.create_session() as session:
            for length in lengths:
                more = length - (session.history_length or 0)
                session.append(self._tokens(max(1, more - 1)))  # before the first answer there has to be a token
                if more > 1:
                    session.generate(max_tokens=1).all()
                    self._store.await_length(session)
                with self._store.written(session) as whole:
                    for path in {whole, *self._store.files(session)}:
                        seen[path.name] = snapshot_figures.size(path, *geometry)
                step("sizes")
        return sorted(seen.values(), key=lambda size: (size["length"], size["start"]))

    def resumes(self) -> dict[str, Any]:
        """Of sessions that are prefilled, written at their turn's end, parked, and asked again."""
        taken: dict[str, list[float]] = {name: [] for name in ("prefill", "write", "park", "resume")}
        step = self._stage.steps(self._settings.rounds, start=0.3, end=0.5)
        for _ in range(self._settings.rounds):
            token_ids = self._tokens(self._settings.tokens)
            started = time.perf_counter()
            with self._client.create_session() as session:
                session.append(token_ids)
                taken["prefill"].append(_first_token(session) - started)
                self._store.await_length(session)
                taken["write"].append(self._write_seconds(session))
                started = time.perf_counter()
                session.park()
                parked = time.perf_counter()
                taken["park"].append(parked - started)
                taken["resume"].append(_first_token(session) - parked)
            step("park and resume")
        return snapshot_figures.resumes(self._settings.tokens, taken)

    def _write_seconds(self, session: kakeya.Session) -> float:
        started = time.perf_counter()
        with self._store.written(session):
            return time.perf_counter() - started

    def decodes(self, prefill_tokens_per_second: float) -> dict[str, Any]:
        """Of a session whose window is full, as is that of the one which is written; pairs of stretches in turn."""
        alone: list[list[float]] = []
        beside: list[list[float]] = []
        with self._client.create_session() as written:
            written.append(self._tokens(self._settings.tokens))
            with self._client.create_session(fork_from=written) as generating:
                generating.generate(max_tokens=1).all()
                self._store.await_length(generating)
                writer = Writer(self._store, written, SINK + self._settings.window, prefill_tokens_per_second)
                num_pairs = max(2, math.ceil(writer.cycle_seconds / self._settings.seconds))
                step = self._stage.steps(num_pairs, start=0.5)
                with decoding(generating) as moments:
                    for order in in_turn(((alone, time.sleep), (beside, writer.run)), num_pairs):
                        for stretches, act in order:
                            started = time.perf_counter()
                            act(self._settings.seconds)
                            ended = time.perf_counter()
                            stretches.append([b - a for a, b in pairwise(moments) if started <= b < ended])
                        step("decode")
        return snapshot_figures.decodes(alone, beside, writer.written_bytes)

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


@contextmanager
def decoding(session: kakeya.Session) -> Iterator[list[float]]:
    """The session generates all along; yields the moments of its tokens."""
    moments: list[float] = []
    is_over = threading.Event()

    def generate() -> None:
        with session.generate(max_tokens=_MANY_TOKENS) as generation:
            for _ in generation:
                moments.append(time.perf_counter())
                if is_over.is_set():
                    break

    with ThreadPoolExecutor(1) as thread:
        generating = thread.submit(generate)
        try:
            wait_until(lambda: len(moments) > 2, "the session generates")
            yield moments
        finally:
            is_over.set()
            generating.result()


@bench.command(SnapshotSettings)
def measure(settings: SnapshotSettings, stage: Stage) -> Found:
    model, directory = settings.made(stage), stage.directory
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    environment = {"KAKEYA_WORKER_SNAPSHOTS": f"{directory}/snapshots", "KAKEYA_WORKER_CACHE_DIR": f"{directory}/cache"}
    # In exact mode, on all cores.
    flags = ("--weights", "int8", "--sink", str(SINK), "--window", str(settings.window), "--threads", num_threads())
    with runtime(model, directory, num_workers=0, router_flags=ROUTER_FLAGS, environment=environment) as made:
        made.start_worker(*flags, lanes=_NUM_LANES)
        wait_until(lambda: len(made.list_workers()) == 1, "the worker has joined", 300.0)
        with kakeya.Client(made.address) as client, Store(directory / "snapshots", made.workers[0].address) as store:
            return Bench(client, store, settings, vocabulary, stage).run()
