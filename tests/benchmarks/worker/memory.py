"""What a worker takes of memory that belongs to no file: while it loads, with a slab in use, and over many turns.

Loading: a model of Qwen3-0.6B's shape in int8, converted at the first start and mapped at the second; then every lane
is filled. Exits with 1 when the most there was at once exceeds 1.1 x (int8 weights + slab) + 400 MB. Turns: 100
sessions of a small model, so many turns in all. Exits with 1 when the last tenth of them takes more than the second
tenth by over 4 MB.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from safetensors import safe_open

from kakeya_bench.report.quantities import Bytes
from kakeya_bench.report.verdict import Verdict, at_most
from kakeya_bench.rivals.checkpoint import save_random_qwen3
from kakeya_bench.statistics.distribution import median
from kakeya_shared.settings.service import setting
from tests.benchmarks import bench
from tests.benchmarks.bench import Found, Stage
from tests.benchmarks.models import ModelSettings
from tests.benchmarks.worker.watched_worker import WatchedWorker, WorkerSessions

SINK, WINDOW, NUM_LANES = 4, 256, 4
FILLING_TOKENS = 400  # more than a lane has slots
OF_WEIGHTS_AND_SLAB, BESIDE_BYTES = 1.1, 400_000_000
NUM_SESSIONS, NUM_TURNS = 100, 10_000
GROWTH_BYTES = 4_000_000
VOCABULARY = 512  # the smallest of the models'
SMALL = {"vocab_size": 32_000, "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8}


class MemorySettings(ModelSettings):
    small: bool = setting(False, "make a smaller model", reason="of Qwen3-0.6B's size")
    turns: int = setting(NUM_TURNS, "turns of all sessions", reason="leaks show", metavar="N", ge=NUM_SESSIONS)


async def measure_start(kind: str, model: Path, directory: Path) -> dict[str, Any]:
    """A worker from its start until every slot of every lane was used.

    Args:
        kind: "converting", the weights into the directory's cache; or "cached", which finds them there.
    """
    cache, started = directory / "cache", time.monotonic()
    shape = ("--sink", str(SINK), "--window", str(WINDOW), "--lanes", str(NUM_LANES))
    with WatchedWorker(_flags(model, cache, *shape), directory / f"{kind}.log") as worker:
        worker.wait_until_serving()
        seconds = time.monotonic() - started
        async with WorkerSessions(worker.address, NUM_LANES, VOCABULARY) as sessions:
            await sessions.turns(FILLING_TOKENS, num_generated=8)
            slab_bytes = await sessions.slab_bytes()
        form = "eager" if worker.logged("kernel chosen") is None else "kernel"
        return start(kind, form, seconds, worker.peak_anonymous_bytes, _weights_bytes(cache), slab_bytes)


def start(kind: str, form: str, seconds: float, peak: int, weights: int, slab: int) -> dict[str, Any]:
    """As it is reported, with its bound.

    Args:
        form: what computes, "kernel" or "eager".
        seconds: until it serves.
        peak: bytes of anonymous memory.
        weights: bytes of int8 weights with their scales and exponents.
        slab: bytes of it.
    """
    bound = int(OF_WEIGHTS_AND_SLAB * (weights + slab)) + BESIDE_BYTES
    sizes = {"peak": peak, "weights": weights, "slab": slab, "bound": bound}
    named = {f"{name}_bytes": Bytes(size) for name, size in sizes.items()}
    return {"kind": kind, "form": form, "seconds": seconds, **named, "is_kept": peak <= bound}


async def measure_turns(
    model: Path, directory: Path, num_turns: int, on_round: Callable[[str], None], num_sessions: int = NUM_SESSIONS
) -> dict[str, Any]:
    """Sessions that go on and on, all at once."""
    flags = _flags(model, directory / "cache", "--sink", "4", "--window", "28", "--lanes", str(num_sessions))
    samples = []
    with WatchedWorker(flags, directory / "turns.log") as worker:
        worker.wait_until_serving()
        async with WorkerSessions(worker.address, num_sessions, VOCABULARY) as sessions:
            for _ in range(num_turns // num_sessions):
                await sessions.turns(num_appended=4, num_generated=4)
                samples.append(worker.anonymous_bytes())
                on_round(f"turns of {num_sessions} sessions")
    return soak(num_sessions, samples)


def soak(num_sessions: int, bytes_after_rounds: Sequence[int]) -> dict[str, Any]:
    """Of anonymous memory after each round of turns, one turn a session; as it is reported, with its bound."""
    # From the second tenth of the rounds, when everything has been used, to the last; medians.
    tenth = max(len(bytes_after_rounds) // 10, 1)
    growth = int(median(bytes_after_rounds[-tenth:]) - median(bytes_after_rounds[tenth : 2 * tenth]))
    return {
        "num_sessions": num_sessions,
        "bytes_after_rounds": [*map(Bytes, bytes_after_rounds)],
        "growth_bytes": Bytes(growth),
        "bound_bytes": Bytes(GROWTH_BYTES),
        "is_kept": growth <= GROWTH_BYTES,
    }


def _flags(model: Path, cache: Path, *more: str) -> Sequence[str]:
    return ("--model", str(model), "--weights", "int8", "--cache-dir", str(cache), "--threads", "2", *more)


def _weights_bytes(cache: Path) -> int:
    (file,) = (cache / "int8").glob("*.safetensors")
    with safe_open(file, framework="pt") as tensors:
        return sum(tensors.get_tensor(name).nbytes for name in tensors.keys())  # noqa: SIM118  # not a mapping


def verdicts(starts: Sequence[dict[str, Any]], turns: dict[str, Any]) -> list[Verdict]:
    return [
        *(at_most(each["kind"], "peak", each["peak_bytes"], each["bound_bytes"]) for each in starts),
        at_most("turns", "growth", turns["growth_bytes"], turns["bound_bytes"]),
    ]


@bench.command(MemorySettings)
def measure(settings: MemorySettings, stage: Stage) -> Found:
    model, starts = settings.made(stage, **(SMALL if settings.small else {})), []
    for number, kind in enumerate(("converting", "cached")):
        stage.show(0.1 + 0.2 * number, f"a worker starts, {kind}")
        starts.append(asyncio.run(measure_start(kind, model, stage.directory)))
    tiny = save_random_qwen3(stage.directory / "tiny")
    on_round = stage.steps(settings.turns // NUM_SESSIONS, start=0.5)
    turns = asyncio.run(measure_turns(tiny, stage.directory, settings.turns, on_round))
    return {"starts": starts, "turns": turns}, verdicts(starts, turns)
