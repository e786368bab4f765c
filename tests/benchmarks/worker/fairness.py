"""What a modest tenant gets beside others: one session that generates, with and without shares, on one engine.

Its share among two tenants is half of what it generates alone, measured in the same round: machines change. Exits
with 1 when the median of the rounds is below that divided by 1.5, beside an equal tenant or beside a greedy one, whose
sessions generate and prefill without an end.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kakeya_bench.report.verdict import at_least
from kakeya_bench.rivals.checkpoint import save_random_qwen3
from kakeya_bench.statistics.distribution import median
from kakeya_shared.settings.service import setting
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.operation import Append, Generate
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.torch_backend import TorchVerifier
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchSettings, Found, Stage
from tests.benchmarks.worker.engine_session import ENDLESS, EngineSession

LEAST_PART = 1 / 1.5  # of its share that the modest tenant must get
NUM_GREEDY = 8  # sessions that generate, and as many that prefill
PROMPT = tuple(range(100, 132))
STEP_TOKENS, CHUNK = 128, 32
TIMEOUT_SECONDS = 60.0
SHAPE: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 4096,
}


class FairnessSettings(BenchSettings):
    seconds: float = setting(8.0, "of each measurement", unit="seconds", reason="hundreds of tokens", gt=0)
    rounds: int = setting(3, "rounds of measurements", reason="a median", metavar="N", ge=1)


@dataclass(frozen=True)
class Neighbour:
    """The other tenant's sessions.

    Attributes:
        is_told: the engine is told whose the sessions are; otherwise all are one tenant's.
    """

    name: str
    is_told: bool = True
    num_generating: int = 0
    num_prefilling: int = 0


NOBODY = Neighbour("nobody")
NEIGHBOURS = [
    Neighbour(name, is_told, num_generating, num_prefilling)
    for name, num_generating, num_prefilling in (("an equal one", 1, 0), ("a greedy one", NUM_GREEDY, NUM_GREEDY))
    for is_told in (True, False)
]

Rates = tuple[float, float]
"""Tokens a second, generated and prefilled together: of the modest tenant, and of the other."""


def rates(engine: Engine, beside: Neighbour, seconds: float) -> Rates:
    """Lets all run for half of the time first, so that the engine knows what they cost."""
    modest, other = ("modest", "neighbour") if beside.is_told else ("", "")
    mine: list[Append | Generate] = [_generating(engine, "modest", modest)]
    others: list[Append | Generate] = []
    others += [_generating(engine, f"g{number}", other) for number in range(beside.num_generating)]
    for number in range(beside.num_prefilling):
        others.append(EngineSession(engine, f"p{number}", other).append(PROMPT * (ENDLESS // len(PROMPT))))
    time.sleep(seconds / 2)
    before, started = (_num_tokens(mine), _num_tokens(others)), time.perf_counter()
    time.sleep(seconds)
    after, took = (_num_tokens(mine), _num_tokens(others)), time.perf_counter() - started
    engine.reset().result(TIMEOUT_SECONDS)
    return (after[0] - before[0]) / took, (after[1] - before[1]) / took


def _generating(engine: Engine, session_id: str, tenant: str) -> Generate:
    session = EngineSession(engine, session_id, tenant)
    session.prefill(PROMPT)
    return session.generate()


def _num_tokens(operations: Sequence[Append | Generate]) -> int:
    return sum(each.num_done if isinstance(each, Append) else each.num_generated for each in operations)


@contextmanager
def started_engine(directory: Path) -> Iterator[Engine]:
    """Of a small random model on one thread."""
    model = save_random_qwen3(directory / "model", **SHAPE)
    verifier = TorchVerifier(str(model), weights="auto", kv_dtype="auto", num_threads=1, cache_directory=None)
    engine = Engine(verifier, LaneGeometry(4, 252, CHUNK), 2 * NUM_GREEDY + 1, STEP_TOKENS)
    engine.start()
    try:
        yield engine
    finally:
        engine.shut_down()


def compare(beside: Neighbour, rounds: Sequence[dict[Neighbour, Rates]]) -> dict[str, Any]:
    """Medians over the rounds; the part is what the modest tenant got, of half of what it gets alone."""
    return {
        "beside": beside.name,
        "is_told": beside.is_told,
        "modest": median(each[beside][0] for each in rounds),
        "neighbour": median(each[beside][1] for each in rounds),
        "part_of_share": median(each[beside][0] / (each[NOBODY][0] / 2) for each in rounds),
    }


@bench.command(FairnessSettings)
def measure(settings: FairnessSettings, stage: Stage) -> Found:
    step = stage.steps(settings.rounds * (1 + len(NEIGHBOURS)))
    rounds: list[dict[Neighbour, Rates]] = [{} for _ in range(settings.rounds)]
    with started_engine(stage.directory) as engine:
        for taken in rounds:
            for each in (NOBODY, *NEIGHBOURS):
                taken[each] = rates(engine, each, settings.seconds)
                step(f"beside {each.name}")
    found = [compare(beside, rounds) for beside in NEIGHBOURS]
    alone = median(each[NOBODY][0] for each in rounds)
    told = [each for each in found if each["is_told"]]
    return (
        {"modest_alone": alone, "least_part_of_share": LEAST_PART, "beside": found},
        [at_least(f"beside {each['beside']}", "of its share", each["part_of_share"], LEAST_PART) for each in told],
    )
