"""How fast GGUF files run in Kakeya and in llama.cpp."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kakeya_bench.engine import memory_read
from kakeya_bench.engine.contestants import READ, Contestant, Entrant
from kakeya_bench.engine.plan import DECODE, PREFILL, SMALL_WINDOW, Case, Plan
from kakeya_bench.engine.run import Seconds
from kakeya_bench.engine.run import measured as run_measured
from kakeya_bench.report.quantities import Seconds as Duration
from kakeya_bench.rivals import checkpoint, llama_cpp
from kakeya_bench.statistics.distribution import median
from tests.benchmarks.bench import Stage

ONE, EIGHT, PREFILLED = (Case(DECODE, 1, SMALL_WINDOW), Case(DECODE, 8, SMALL_WINDOW), Case(PREFILL, 256, SMALL_WINDOW))
CASES = (ONE, EIGHT, PREFILLED)
INT8 = "Kakeya int8"
KINDS = {"q4": "Q4_K_M", "q4_0": "Q4_0"}
"""Of llama.cpp's quantizer, by how figures call them."""


@dataclass(frozen=True)
class Speeds:
    """What was found.

    Attributes:
        seconds: by case and contestant, the median over rounds.
        ratios: of speeds by figure, the median over rounds; a step's time over the floor's.
        llama_facts: by contestant llama.cpp's version, and its settings for each case.
    """

    seconds: dict[str, dict[str, Any]]
    ratios: dict[str, float]
    llama_facts: dict[str, Any]


def measured(smollm2: Path, num_rounds: int, kept: Path, stage: Stage) -> Speeds:
    """All of it.

    Args:
        kept: where the models stay between runs.

    Raises:
        RivalFailed: a contestant could not be built, or did not do what it was told.
    """
    plan = Plan()
    stage.show(0.3, "making files of Qwen3-0.6B's shape")
    name = hashlib.sha256(json.dumps(plan.shape, sort_keys=True).encode()).hexdigest()[:12]
    model = checkpoint.kept(kept / name, plan.shape, "bfloat16")
    q8_0 = model / checkpoint.GGUF
    quantized = {figure: llama_cpp.requantized(q8_0, model / f"{kind}.gguf", kind) for figure, kind in KINDS.items()}
    entrants = [_kakeya(INT8, model, "int8", plan, stage.directory)]
    for figure, path in quantized.items():
        entrants += [_kakeya(_ours(figure), path, "gguf", plan, stage.directory), _llama(_theirs(figure), path, plan)]
    reader = memory_read.entrant(quantized["q4"].stat().st_size, plan, stage.directory)
    seconds, facts = _played([*entrants, reader], plan, num_rounds)
    stage.show(0.8, "SmolLM2")
    small = [
        _kakeya(_ours("smollm2"), smollm2, "gguf", plan, stage.directory),
        _llama(_theirs("smollm2"), smollm2, plan),
    ]
    of_smollm2, more_facts = _played(small, plan, num_rounds)
    ratios = {
        **{name: ratio for figure in KINDS for name, ratio in over_llama(seconds, figure).items()},
        "q4_decode_1_over_int8": _ratio(seconds[ONE.name], INT8, _ours("q4")),
        "q4_decode_8_over_int8": _ratio(seconds[EIGHT.name], INT8, _ours("q4")),
        "q4_step_over_floor": _ratio(seconds[ONE.name], _ours("q4"), READ),
        **over_llama(of_smollm2, "smollm2"),
    }
    typical = {case.name: {**_typical(seconds[case.name]), **_typical(of_smollm2[case.name])} for case in CASES}
    return Speeds(typical, ratios, {**facts, **more_facts})


def over_llama(seconds: Seconds, figure: str) -> dict[str, float]:
    """Speeds on one file, ours in times of theirs."""
    names = {ONE: "decode_1", EIGHT: "decode_8", PREFILLED: "prefill"}
    return {
        f"{figure}_{name}_over_llama": _ratio(seconds[case.name], _theirs(figure), _ours(figure))
        for case, name in names.items()
    }


def _played(entrants: Sequence[Entrant], plan: Plan, num_rounds: int) -> tuple[Seconds, dict[str, Any]]:
    facts: dict[str, Any] = {}
    with ExitStack() as stack:
        running: dict[str, Contestant] = {}
        for entrant in entrants:
            contestant = stack.enter_context(entrant.running())
            loaded = contestant.load()
            running[entrant.name] = contestant
            if entrant.name == READ:
                continue
            opened = contestant.open(CASES)
            if entrant.module == "llama_cpp":
                facts[entrant.name] = {"version": loaded["version"], **_settings(opened["settings"])}
        by_case = {case: running if case == ONE else _without_reader(running) for case in CASES}
        return run_measured(by_case, num_rounds, plan.burst_seconds), facts


def _settings(by_case: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Of each case, as one text."""
    return {case: ", ".join(f"{name} {value}" for name, value in found.items()) for case, found in by_case.items()}


def _without_reader(running: Mapping[str, Contestant]) -> dict[str, Contestant]:
    return {name: contestant for name, contestant in running.items() if name != READ}


def _kakeya(name: str, model: Path, weights: str, plan: Plan, cache_directory: Path) -> Entrant:
    loading = {"model": str(model), "weights": weights, "num_threads": plan.num_threads}
    return Entrant(name, "kakeya", {**loading, "cache_directory": cache_directory}, {"chunk": plan.chunk})


def _llama(name: str, model: Path, plan: Plan) -> Entrant:
    loading = {"model": str(model), "num_threads": plan.num_threads}
    return Entrant(name, "llama_cpp", loading, packages=llama_cpp.BINDING.packages)


def _ours(figure: str) -> str:
    return f"Kakeya {figure}"


def _theirs(figure: str) -> str:
    return f"llama.cpp {figure}"


def _ratio(of_case: Mapping[str, list[list[float]]], numerator: str, denominator: str) -> float:
    """The median over rounds of what is divided within each round, whose moments of noise both have seen."""
    pairs = zip(of_case[numerator], of_case[denominator], strict=True)
    return median([median(above) / median(below) for above, below in pairs])


def _typical(of_case: Mapping[str, list[list[float]]]) -> dict[str, Duration]:
    return {name: Duration(median([median(burst) for burst in bursts])) for name, bursts in of_case.items()}
