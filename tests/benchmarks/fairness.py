"""What a modest tenant gets beside others: one session that generates, with and without shares, on one engine.

    python -m tests.benchmarks.fairness [--json FILE] [--seconds S] [--rounds N]

Its share among two tenants is half of what it generates alone, measured in the same round: machines change. Exits
with 1 when the median of the rounds is below that divided by 1.5, beside an equal tenant or beside a greedy one, whose
sessions generate and prefill without an end.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.operation import Append, Generate
from kakeya_worker.engine.sampling.sampling import Sampling, TokenDetail
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions
from kakeya_worker.torch_backend import TorchVerifier
from tests.checkpoints import save_random_qwen3

LEAST_PART = 1 / 1.5  # of its share that the modest tenant must get
NUM_GREEDY = 8  # sessions that generate, and as many that prefill
PROMPT = tuple(range(100, 132))
ENDLESS = 10**6  # tokens
STEP_TOKENS, CHUNK = 128, 32
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Neighbour:
    """The other tenant's sessions."""

    name: str
    num_generating: int = 0
    num_prefilling: int = 0


NOBODY = Neighbour("nobody")
EQUAL = Neighbour("an equal one", num_generating=1)
GREEDY = Neighbour("a greedy one", num_generating=NUM_GREEDY, num_prefilling=NUM_GREEDY)


@dataclass(frozen=True)
class Setting:
    """Attributes:
    is_told: the engine is told whose the sessions are; otherwise all are one tenant's.
    """

    neighbour: Neighbour
    is_told: bool


ALONE = Setting(NOBODY, is_told=True)
BESIDE = [Setting(neighbour, is_told) for neighbour in (EQUAL, GREEDY) for is_told in (True, False)]


@dataclass(frozen=True)
class Rates:
    """Tokens a second, generated and prefilled together."""

    modest: float
    neighbour: float


@dataclass(frozen=True)
class Comparison:
    """Medians over the rounds.

    Attributes:
        part_of_share: what the modest tenant got, of half of what it gets alone.
    """

    beside: str
    is_told: bool
    modest: float
    neighbour: float
    part_of_share: float


class Bench:
    """Sessions on one engine; whatever is read is acknowledged at once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def measure(self, setting: Setting, seconds: float) -> Rates:
        """Lets all run for half of the time first, so that the engine knows what they cost."""
        owners = ("modest", "neighbour") if setting.is_told else ("", "")
        modest: list[Append | Generate] = [self._generate("modest", owners[0])]
        others: list[Append | Generate] = []
        others += [self._generate(f"g{number}", owners[1]) for number in range(setting.neighbour.num_generating)]
        others += [self._prefill(f"p{number}", owners[1]) for number in range(setting.neighbour.num_prefilling)]
        time.sleep(seconds / 2)
        before, started = (_num_tokens(modest), _num_tokens(others)), time.perf_counter()
        time.sleep(seconds)
        after, took = (_num_tokens(modest), _num_tokens(others)), time.perf_counter() - started
        self._engine.reset().result(TIMEOUT_SECONDS)
        return Rates(*((last - first) / took for first, last in zip(before, after, strict=True)))

    def _generate(self, session_id: str, tenant: str) -> Generate:
        self._open(session_id, tenant)
        prompt = Append(session_id, 1, 0, PROMPT)
        self._engine.submit(prompt)
        prompt.future.result(TIMEOUT_SECONDS)

        def read(token_id: int, detail: TokenDetail | None) -> None:
            self._engine.acknowledge(generate, generate.num_generated)

        generate = Generate(
            session_id,
            1,
            len(PROMPT),
            max_tokens=ENDLESS,
            eos_token_ids=frozenset(),
            sampling=Sampling(),
            on_token=read,
        )
        self._engine.submit(generate)
        return generate

    def _prefill(self, session_id: str, tenant: str) -> Append:
        self._open(session_id, tenant)
        append = Append(session_id, 1, 0, PROMPT * (ENDLESS // len(PROMPT)))
        self._engine.submit(append)
        return append

    def _open(self, session_id: str, tenant: str) -> None:
        self._engine.open(session_id, 1, SessionOptions(), tenant).result(TIMEOUT_SECONDS)


def _num_tokens(operations: list[Append | Generate]) -> int:
    return sum(each.num_done if isinstance(each, Append) else each.num_generated for each in operations)


def run(engine: Engine, seconds: float, num_rounds: int) -> Iterator[dict[Setting, Rates]]:
    """Each round measures every setting once."""
    bench = Bench(engine)
    for number in range(num_rounds):
        print(f"round {number + 1} of {num_rounds}", file=sys.stderr, flush=True)
        yield {setting: bench.measure(setting, seconds) for setting in (ALONE, *BESIDE)}


def start_engine(directory: Path) -> Engine:
    """Of a small random model on one thread."""
    model = save_random_qwen3(
        directory / "model",
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=4096,
    )
    verifier = TorchVerifier(str(model), weights="auto", kv_dtype="auto", num_threads=1, cache_directory=None)
    engine = Engine(verifier, LaneGeometry(4, 252, CHUNK), 2 * NUM_GREEDY + 1, STEP_TOKENS)
    engine.start()
    return engine


def compare(rounds: list[dict[Setting, Rates]]) -> list[Comparison]:
    return [
        Comparison(
            setting.neighbour.name,
            setting.is_told,
            median(rates[setting].modest for rates in rounds),
            median(rates[setting].neighbour for rates in rounds),
            median(rates[setting].modest / (rates[ALONE].modest / 2) for rates in rounds),
        )
        for setting in BESIDE
    ]


def report(alone: float, comparisons: list[Comparison]) -> bool:
    """Prints a table in tokens a second; whether the modest tenant got enough of its share."""
    print(f"{'beside':14} {'tenants':>8} {'modest':>8} {'of share':>9} {'neighbour':>10} {'both':>8}")
    print(f"{NOBODY.name:14} {'':8} {alone:8.1f}")
    for each in comparisons:
        print(
            f"{each.beside:14} {'told' if each.is_told else 'not told':>8} {each.modest:8.1f} "
            f"{each.part_of_share:9.2f} {each.neighbour:10.1f} {each.modest + each.neighbour:8.1f}"
        )
    worst = min(each.part_of_share for each in comparisons if each.is_told)
    verdict = "kept" if worst >= LEAST_PART else "BROKEN"
    print(
        f"told of tenants, the modest one gets at least {worst:.2f} of its share; bound of {LEAST_PART:.2f} {verdict}"
    )
    return worst >= LEAST_PART


def as_json(alone: float, comparisons: list[Comparison]) -> str:
    """The table and what it was judged by."""
    rows = [asdict(comparison) for comparison in comparisons]
    return json.dumps({"modest_alone": alone, "least_part_of_share": LEAST_PART, "beside": rows}, indent=2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement (default: 8)")
    parser.add_argument("--rounds", type=int, default=3, help="of measurements (default: 3)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        engine = start_engine(Path(directory))
        try:
            rounds = list(run(engine, arguments.seconds, arguments.rounds))
        finally:
            engine.shut_down()
    alone, comparisons = median(rates[ALONE].modest for rates in rounds), compare(rounds)
    if arguments.json:
        arguments.json.write_text(as_json(alone, comparisons) + "\n")
    return 0 if report(alone, comparisons) else 1


if __name__ == "__main__":
    sys.exit(main())
