"""GGUF files as people have them, beside llama.cpp on the same files: what is lost, and how fast they run.

Lost: SmolLM2-135M-Instruct over English, beside its own numbers in float32. Speed: a model of Qwen3-0.6B's shape with
random weights, as Q4_K_M and as Q4_0 by llama.cpp's own quantizer, and SmolLM2's file. Each has two threads, in
one interleaved run, and llama.cpp the fastest of its settings. Exits with 1 when a bound is broken. Exits with 2 when
that cannot be judged.
"""

from pathlib import Path
from typing import Any

from kakeya_bench.report.quantities import Precise
from kakeya_bench.report.verdict import Verdict, at_least, at_most
from kakeya_bench.rivals import llama_cpp
from kakeya_bench.rivals.command import BENCH
from kakeya_shared.settings.service import setting
from kakeya_worker.torch_backend.exact.kernel.library import chosen_variant
from tests.benchmarks.bench import BenchSettings, Found, Stage
from tests.benchmarks.gguf import losses, speeds

INT8_KL_OVER_Q8_0, Q4_KL_OVER_LLAMA = 0.6, 0.25
LEAST = {
    "q4_decode_1_over_llama": 1.3,
    "q4_decode_8_over_llama": 2.2,
    "q4_prefill_over_llama": 1.1,
    "q4_0_decode_1_over_llama": 1.2,
    "q4_0_decode_8_over_llama": 1.6,
}
"""Kakeya's tokens a second in times of llama.cpp's on the same file."""
LEAST_OVER_INT8 = {"avx512vnni": 1.6}
LEAST_OVER_INT8_ELSEWHERE = 1.45
MOST_OVER_FLOOR = 1.4


class ModelsSettings(BenchSettings):
    smollm2: Path = setting(..., "SmolLM2-135M-Instruct as a GGUF file", metavar="FILE")
    rounds: int = setting(
        7, "in which each is measured once in each case", reason="as `make bench-engine`", metavar="N", ge=1
    )
    tokens: int = setting(2048, "of the text", reason="a mean that another text hardly moves", metavar="N", ge=2)


def measure(settings: ModelsSettings, stage: Stage) -> Found:
    stage.show(0.0, "building llama.cpp where it is missing")
    llama_cpp.prepare()
    lost = losses.measured(settings.smollm2, settings.tokens, stage.directory, stage.steps(5, end=0.3))
    fast = speeds.measured(settings.smollm2, settings.rounds, BENCH, stage)
    ratios = {**losses.ratios(lost), **fast.ratios}
    document: dict[str, Any] = {
        **{name: Precise(ratio) for name, ratio in ratios.items()},
        **{f"lost by {name}": each for name, each in lost.items()},
        **{f"seconds of {case}": seconds for case, seconds in fast.seconds.items()},
        "kernel": chosen_variant() or "eager",
        **fast.llama_facts,
    }
    return document, verdicts(ratios, chosen_variant())


def verdicts(ratios: dict[str, float], kernel: str | None) -> list[Verdict]:
    bounds = {**LEAST, "q4_decode_1_over_int8": LEAST_OVER_INT8.get(kernel or "", LEAST_OVER_INT8_ELSEWHERE)}
    return [
        _most(ratios, "int8_kl_over_q8_0", INT8_KL_OVER_Q8_0),
        _most(ratios, "q4_kl_over_llama", Q4_KL_OVER_LLAMA),
        *(at_least(name, name, Precise(ratios[name]), Precise(bound)) for name, bound in bounds.items()),
        _most(ratios, "q4_step_over_floor", MOST_OVER_FLOOR),
    ]


def _most(ratios: dict[str, float], name: str, bound: float) -> Verdict:
    return at_most(name, name, Precise(ratios[name]), Precise(bound))
