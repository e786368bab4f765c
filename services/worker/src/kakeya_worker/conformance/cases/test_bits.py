"""Exact mode: the same raw bits under all circumstances, on every machine, and in the reference."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kakeya_worker.conformance import golden
from kakeya_worker.conformance.declaration import Mode
from kakeya_worker.conformance.tools.bit_variants import BIT_VARIANTS
from kakeya_worker.conformance.tools.checkpoints import Variant
from kakeya_worker.conformance.tools.circumstances import Circumstances, every, pairwise
from kakeya_worker.conformance.tools.subject import declaration
from kakeya_worker.conformance.tools.transcript_process import Job, run_elsewhere

# Threads that spin for one another on cores that others use take fifty times as long.
_PATIENT = {"GOMP_SPINCOUNT": "2000"}

_each_variant = pytest.mark.parametrize("variant", BIT_VARIANTS, ids=lambda variant: variant.name)


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The checkpoint of each variant, by name."""
    root = tmp_path_factory.mktemp("bits")
    return {variant.name: variant.write(root / variant.name) for variant in BIT_VARIANTS}


class Bench:
    """Runs jobs of one plugin and tells those that do not give the known answer."""

    def __init__(self, plugin: str, checkpoints: Mapping[str, Path]) -> None:
        declared = declaration(plugin)
        self._plugin = plugin
        self._modes = {mode.kv_dtype: mode for mode in declared.modes if mode.tolerance == "exact"}
        if not self._modes:
            pytest.skip(f"{plugin} declares no exact mode")
        self._families = declared.families
        self._checkpoints = checkpoints
        self._golden = golden.read()

    def job(self, variant: Variant, circumstances: Circumstances, kv_dtype: str = "bfloat16") -> Job:
        if variant.family not in self._families or kv_dtype not in self._modes:
            pytest.skip(f"{self._plugin} declares no exact {variant.family} with a KV of {kv_dtype}")
        mode: Mode = self._modes[kv_dtype]
        return Job(self._plugin, mode, variant.name, str(self._checkpoints[variant.name]), circumstances)

    def wrong_here(self, *jobs: Job) -> list[str]:
        """Runs in this process."""
        return [problem for job in jobs for problem in self._problems(job, job.run())]

    def wrong_elsewhere(self, jobs: Sequence[Job], environment: Mapping[str, str] = _PATIENT) -> list[str]:
        """Runs in a process of its own."""
        transcripts = run_elsewhere(jobs, {**_PATIENT, **environment})
        pairs = zip(jobs, transcripts, strict=True)
        return [problem for job, transcript in pairs for problem in self._problems(job, transcript)]

    def covered(self) -> list[Variant]:
        return [variant for variant in BIT_VARIANTS if variant.family in self._families]

    def _problems(self, job: Job, transcript: Mapping[str, str]) -> list[str]:
        known = self._golden[job.mode.kv_dtype][job.variant]
        return [f"{job.variant} {job.circumstances} from {name}" for name in known if transcript[name] != known[name]]


@pytest.fixture
def bench(plugin: str, checkpoints: dict[str, Path]) -> Bench:
    return Bench(plugin, checkpoints)


@pytest.mark.parametrize("kv_dtype", golden.KV_DTYPES)
@_each_variant
def test_the_reference_gives_the_known_answers(variant: Variant, kv_dtype: str) -> None:
    assert golden.answer(variant, kv_dtype) == golden.read()[kv_dtype][variant.name]


@_each_variant
def test_a_few_circumstances(bench: Bench, variant: Variant) -> None:
    """All variants together meet every pair of an append's size, a company and a chunk."""
    number = 2 * BIT_VARIANTS.index(variant)
    some = [pairwise(num_threads=1)[(number + offset) % 12] for offset in range(2)]
    assert bench.wrong_here(*(bench.job(variant, circumstances) for circumstances in some)) == []


@_each_variant
@pytest.mark.parametrize("kv_dtype", ["float32", "int8"])
def test_kv_of_other_types(bench: Bench, variant: Variant, kv_dtype: str) -> None:
    assert bench.wrong_here(bench.job(variant, Circumstances(64, 1, 32, num_threads=1), kv_dtype)) == []


def test_two_threads(bench: Bench) -> None:
    assert bench.wrong_elsewhere(_one_each(bench, 2, offset=5)) == []


def test_as_on_other_machines(bench: Bench, plugin: str, environment: str) -> None:
    jobs = [
        bench.job(variant, Circumstances(64, 1, 32, num_threads=1 + number % 2), kv_dtype)
        for kv_dtype, variants in (("bfloat16", bench.covered()), ("int8", bench.covered()[::2]))
        for number, variant in enumerate(variants)
    ]
    assert bench.wrong_elsewhere(jobs, declaration(plugin).environments[environment]) == []


@pytest.mark.heavy
@pytest.mark.parametrize("num_threads", [1, 2])
def test_as_on_other_machines_under_more_circumstances(
    bench: Bench, plugin: str, environment: str, num_threads: int
) -> None:
    jobs = [
        job
        for kv_dtype in ("bfloat16", "int8")
        for offset in (0, 3, 7)
        for job in _one_each(bench, num_threads, offset, kv_dtype)
    ]
    assert bench.wrong_elsewhere(jobs, declaration(plugin).environments[environment]) == []


@pytest.mark.heavy
@_each_variant
@pytest.mark.parametrize("kv_dtype", ["bfloat16", "int8"])
def test_every_circumstance(bench: Bench, variant: Variant, kv_dtype: str) -> None:
    jobs = [bench.job(variant, circumstances, kv_dtype) for circumstances in every(num_threads=1)]
    num_processes = min(os.cpu_count() or 1, len(jobs))
    shares = [jobs[first::num_processes] for first in range(num_processes)]
    with ThreadPoolExecutor(num_processes) as pool:
        wrong = [problem for problems in pool.map(bench.wrong_elsewhere, shares) for problem in problems]
    assert wrong == []


@pytest.mark.heavy
@_each_variant
def test_every_circumstance_on_two_threads(bench: Bench, variant: Variant) -> None:
    jobs = [bench.job(variant, circumstances) for circumstances in every(num_threads=2)]
    assert bench.wrong_elsewhere(jobs) == []


def _one_each(bench: Bench, num_threads: int, offset: int, kv_dtype: str = "bfloat16") -> list[Job]:
    """A job for each variant that the plugin covers, under circumstances of which no two are the same."""
    combinations = pairwise(num_threads)
    return [
        bench.job(variant, combinations[(number + offset) % len(combinations)], kv_dtype)
        for number, variant in enumerate(bench.covered())
    ]
