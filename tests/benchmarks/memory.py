"""What a worker takes of memory that belongs to no file: while it loads, with a slab in use, and over many turns.

    python -m tests.benchmarks.memory [--json FILE] [--model DIR | --small] [--turns N]

Loading: a model of Qwen3-0.6B's shape in int8, converted at the first start and mapped at the second; then every lane
is filled. Exits with 1 when the most there was at once exceeds 1.1 x (int8 weights + slab) + 400 MB. Turns: 100
sessions of a small model, so many turns in all. Exits with 1 when the last tenth of them takes more than the second
tenth by over 4 MB.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch
from safetensors import safe_open

from tests.benchmarks import watched_worker
from tests.benchmarks.logged_command import say
from tests.benchmarks.qwen3_session import SHAPE
from tests.benchmarks.watched_worker import WatchedWorker
from tests.benchmarks.worker_sessions import WorkerSessions
from tests.checkpoints import save_random_qwen3

SINK, WINDOW, NUM_LANES = 4, 256, 4
FILLING_TOKENS = 400  # more than a lane has slots
OF_WEIGHTS_AND_SLAB, BESIDE_BYTES = 1.1, 400_000_000
NUM_SESSIONS, NUM_TURNS = 100, 10_000
GROWTH_BYTES = 4_000_000
VOCABULARY = 512  # the smallest of the models'
SMALL = {"vocab_size": 32_000, "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8}


@dataclass(frozen=True)
class Start:
    """A worker from its start until all lanes are full.

    Attributes:
        seconds: until it serves.
        form: what computes, "kernel" or "eager".
        peak_bytes: of anonymous memory.
        weights_bytes: of int8 weights with their scales and exponents.
    """

    kind: str
    form: str
    seconds: float
    peak_bytes: int
    weights_bytes: int
    slab_bytes: int

    @property
    def bound_bytes(self) -> int:
        return int(OF_WEIGHTS_AND_SLAB * (self.weights_bytes + self.slab_bytes)) + BESIDE_BYTES

    @property
    def is_kept(self) -> bool:
        return self.peak_bytes <= self.bound_bytes


@dataclass(frozen=True)
class Soak:
    """Anonymous memory after each round of turns, one turn a session."""

    num_sessions: int
    bytes_after_rounds: list[int]

    @property
    def growth_bytes(self) -> int:
        """From the second tenth of the rounds, when everything has been used, to the last; medians."""
        tenth = max(len(self.bytes_after_rounds) // 10, 1)
        early, late = self.bytes_after_rounds[tenth : 2 * tenth], self.bytes_after_rounds[-tenth:]
        return int(median(late) - median(early))

    @property
    def is_kept(self) -> bool:
        return self.growth_bytes <= GROWTH_BYTES


def measure_starts(model: Path, directory: Path) -> list[Start]:
    """The first one converts the weights, the second finds them."""
    return [_measure_start(kind, model, directory) for kind in ("converting", "cached")]


def _measure_start(kind: str, model: Path, directory: Path) -> Start:
    say(f"a worker starts, {kind}")
    cache = directory / "cache"
    shape = ("--sink", str(SINK), "--window", str(WINDOW), "--lanes", str(NUM_LANES))
    started = time.monotonic()
    with watched_worker.running(_flags(model, cache, *shape), directory / f"{kind}.log") as worker:
        worker.wait_until_serving()
        seconds = time.monotonic() - started
        slab_bytes = asyncio.run(_fill(worker))
        form = "eager" if worker.logged("kernel chosen") is None else "kernel"
        return Start(kind, form, seconds, worker.peak_anonymous_bytes, _weights_bytes(cache), slab_bytes)


async def _fill(worker: WatchedWorker) -> int:
    """Uses every slot of every lane; returns the slab's bytes."""
    async with WorkerSessions(worker.address, NUM_LANES, VOCABULARY) as sessions:
        await sessions.turns(FILLING_TOKENS, num_generated=8)
        return await sessions.slab_bytes()


def measure_turns(model: Path, directory: Path, num_turns: int, num_sessions: int = NUM_SESSIONS) -> Soak:
    """Sessions that go on and on, all at once."""
    say(f"{num_turns} turns of {num_sessions} sessions")
    flags = _flags(model, directory / "cache", "--sink", "4", "--window", "28", "--lanes", str(num_sessions))
    with watched_worker.running(flags, directory / "turns.log") as worker:
        worker.wait_until_serving()
        return Soak(num_sessions, asyncio.run(_take_turns(worker, num_turns // num_sessions, num_sessions)))


async def _take_turns(worker: WatchedWorker, num_rounds: int, num_sessions: int) -> list[int]:
    samples = []
    async with WorkerSessions(worker.address, num_sessions, VOCABULARY) as sessions:
        for _ in range(num_rounds):
            await sessions.turns(num_appended=4, num_generated=4)
            samples.append(worker.anonymous_bytes())
    return samples


def _flags(model: Path, cache: Path, *more: str) -> Sequence[str]:
    return ("--model", str(model), "--weights", "int8", "--cache-dir", str(cache), "--threads", "2", *more)


def _weights_bytes(cache: Path) -> int:
    (file,) = (cache / "int8").glob("*.safetensors")
    with safe_open(file, framework="pt") as tensors:
        return sum(tensors.get_tensor(name).nbytes for name in tensors.keys())  # noqa: SIM118  # not a mapping


def report(starts: list[Start], soak: Soak) -> bool:
    """Prints in MB; whether all bounds are kept."""
    print(f"{'start':12} {'form':8} {'seconds':>8} {'weights':>8} {'slab':>6} {'peak':>6} {'bound':>6}")
    for start in starts:
        sizes = [f"{num_bytes / 1e6:.0f}" for num_bytes in (start.weights_bytes, start.slab_bytes, start.peak_bytes)]
        print(
            f"{start.kind:12} {start.form:8} {start.seconds:8.1f} {sizes[0]:>8} {sizes[1]:>6} {sizes[2]:>6} "
            f"{start.bound_bytes / 1e6:6.0f} {_verdict(start.is_kept)}"
        )
    num_turns = soak.num_sessions * len(soak.bytes_after_rounds)
    print(
        f"{num_turns} turns of {soak.num_sessions} sessions: {soak.bytes_after_rounds[-1] / 1e6:.1f} MB at the end, "
        f"growth {soak.growth_bytes / 1e6:.2f} MB; bound of {GROWTH_BYTES / 1e6:.0f} MB {_verdict(soak.is_kept)}"
    )
    return all([*(start.is_kept for start in starts), soak.is_kept])


def _verdict(is_kept: bool) -> str:
    return "kept" if is_kept else "BROKEN"


def as_json(starts: list[Start], soak: Soak) -> str:
    measured = [{**asdict(start), "bound_bytes": start.bound_bytes, "is_kept": start.is_kept} for start in starts]
    turns = {**asdict(soak), "growth_bytes": soak.growth_bytes, "bound_bytes": GROWTH_BYTES, "is_kept": soak.is_kept}
    return json.dumps({"starts": measured, "turns": turns}, indent=2)


def _made_model(directory: Path, *, is_small: bool) -> Path:
    say("making the model")
    return save_random_qwen3(directory, dtype=torch.bfloat16, **(SMALL if is_small else SHAPE))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    parser.add_argument("--model", type=Path, metavar="DIR", help="a checkpoint (default: random, Qwen3-0.6B's shape)")
    parser.add_argument("--small", action="store_true", help="make a smaller model")
    parser.add_argument("--turns", type=int, default=NUM_TURNS, help=f"of the sessions (default: {NUM_TURNS})")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kakeya-memory-") as temporary:
        directory = Path(temporary)
        model = arguments.model or _made_model(directory / "model", is_small=arguments.small)
        starts = measure_starts(model, directory)
        soak = measure_turns(save_random_qwen3(directory / "tiny"), directory, arguments.turns)
    if arguments.json:
        arguments.json.write_text(as_json(starts, soak) + "\n")
    return 0 if report(starts, soak) else 1


if __name__ == "__main__":
    sys.exit(main())
