"""`make bench-engine`: its arithmetic, its processes, and a run on a tiny model."""

import json
import sys
from pathlib import Path

import pytest

from kakeya.bench.verdict import Outcome, exit_status
from tests.benchmarks import engine_bench, engine_figures, engine_process, engine_report
from tests.benchmarks.engine_case import DECODE, PREFILL, Case
from tests.benchmarks.engine_checkpoint import EngineCheckpoint
from tests.benchmarks.engine_contestants import BFLOAT16, INT8, LLAMA, READ, TRANSFORMERS
from tests.benchmarks.engine_figures import FLOOR, LEAST, MOST
from tests.benchmarks.engine_plan import Plan
from tests.benchmarks.engine_process import ContestantFailed
from tests.benchmarks.engine_rounds import burst_length, order
from tests.benchmarks.llama_cpp_environment import BINDING
from tests.benchmarks.qwen3_session import SHAPE

TINY = Plan(
    shape={"max_position_embeddings": 1024},
    windows=(64, 256),
    num_sessions=(1, 3),
    num_prefill_tokens=(64, 256),
    num_rounds=2,
    burst_seconds=0.01,
)


def test_a_session_without_a_window_ends_with_as_many_keys() -> None:
    cases = [Case(DECODE, 8, 64), Case(DECODE, 1, 2048), Case(PREFILL, 64, 2048), Case(PREFILL, 256, 64)]
    assert [case.name for case in cases] == ["decode_8", "decode_1_w2048", "prefill_64_w2048", "prefill_256"]
    assert [case.num_sessions for case in cases] == [8, 1, 1, 1]
    assert [case.num_held_tokens + case.num_new_tokens for case in cases] == [64, 2048, 2048, 256]


def test_every_bound_speaks_of_a_case_that_is_measured() -> None:
    plan = Plan()
    names = [case.name for window in plan.windows for case in plan.cases(window)]
    assert set(LEAST) <= set(names)


def test_a_ratio_is_taken_within_each_round() -> None:
    """The machine is slow for both in the second round, and ten times as fast for one of them in the third."""
    seconds = {"decode_1": {LLAMA: [[2.0], [20.0], [0.2]], INT8: [[1.0], [10.0], [1.0]], READ: [[0.8], [8.0], [0.8]]}}
    found = engine_figures.llama_ratios(seconds)["decode_1"]
    assert found.estimate == 2.0
    assert 0.2 <= found.low < 2.0 == found.high
    assert engine_figures.floor_ratio(seconds, "decode_1").estimate == 1.25


def test_a_burst_counts_with_its_median() -> None:
    seconds = {"prefill_64": {INT8: [[1.0, 3.0, 50.0], [2.0, 2.0, 2.0], [9.0]]}}
    assert engine_figures.rounds(seconds, "prefill_64", INT8) == [3.0, 2.0, 9.0]
    assert engine_figures.typical(seconds, "prefill_64", INT8) == 3.0


def test_bounds_are_least_speeds_and_a_most_for_the_floor() -> None:
    kept = {name: engine_figures.ratio([bound], [1.0]) for name, bound in {**LEAST, **MOST}.items()}
    assert exit_status(engine_figures.verdicts(kept)) == 0
    missed = {**kept, "decode_8": engine_figures.ratio([2.4], [1.0]), FLOOR: engine_figures.ratio([1.3], [1.0])}
    verdicts = engine_figures.verdicts(missed)
    assert {verdict.gate for verdict in verdicts if verdict.outcome is Outcome.FAILED} == {"decode_8", FLOOR}
    assert exit_status(verdicts) == 1


def test_a_burst_lasts_about_as_long_whatever_is_measured() -> None:
    assert burst_length(Case(DECODE, 1, 64), 0.02, burst_seconds=0.3) == 15
    assert burst_length(Case(DECODE, 8, 2048), 2.0, burst_seconds=0.3) == 3
    assert burst_length(Case(PREFILL, 512, 64), 2.0, burst_seconds=0.3) == 1
    assert burst_length(Case(DECODE, 1, 64), 1e-6, burst_seconds=0.3) == 30


def test_nobody_always_comes_after_the_same_one() -> None:
    names = [INT8, BFLOAT16, TRANSFORMERS, LLAMA]
    rounds = [order(names, number) for number in range(4)]
    assert all(sorted(each) == sorted(names) for each in rounds)
    for name in names:
        assert len({each.index(name) for each in rounds}) > 1
        assert len({each[each.index(name) - 1] for each in rounds}) > 1


def test_a_decode_step_reads_every_matrix_once(tmp_path: Path) -> None:
    """28 layers of 15,728,640 weights, and the head, which is the embedding."""
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    weight_bytes = EngineCheckpoint(tmp_path, tmp_path / "Q8_0.gguf").int8_weight_bytes
    assert weight_bytes == 28 * 15_728_640 + 151_936 * 1024 == 595_984_384


def test_says_why_a_contestant_failed() -> None:
    with engine_process.running(sys.executable, "tests.benchmarks.engine_memory_read") as process:
        with pytest.raises(ContestantFailed, match=r"(?s)failed to load.*nowhere\.so"):
            process.ask("load", library="nowhere.so", num_bytes=64, num_threads=1)
        with pytest.raises(ContestantFailed, match="no command"):
            process.ask("dance")


def test_says_that_a_contestant_ended() -> None:
    with (
        engine_process.running(sys.executable, "tests.benchmarks.no_such_contestant") as process,
        pytest.raises(ContestantFailed, match=r"(?s)status 1.*no_such_contestant"),
    ):
        process.ask("load")


@pytest.mark.heavy
@pytest.mark.skipif(not BINDING.is_ready, reason="llama.cpp is not built here; `make bench-engine` builds it")
def test_measures_everybody_in_every_case(tmp_path: Path) -> None:
    """Without what it says about time: other tests may be running beside it, and the model is a tiny one."""
    run = engine_bench.played(TINY, tmp_path)
    document = json.loads(json.dumps(engine_report.document(run), allow_nan=False))
    names = ["decode_1", "decode_3", "prefill_64", "prefill_256"]
    assert [case["name"] for case in document["cases"]] == [*names, *(f"{name}_w256" for name in names)]
    for case in document["cases"]:
        assert list(case["seconds"]) == [INT8, BFLOAT16, TRANSFORMERS, LLAMA]
        assert min(min(rounds) for rounds in case["rounds"].values()) > 0.0
        assert {len(rounds) for rounds in case["rounds"].values()} == {TINY.num_rounds}
        assert case["context"]["kakeya"]["tokens_before_at_least"] > case["window"]
        assert document["sessions"][str(case["window"])][LLAMA]["settings"][case["name"]]
    assert set(document["ratios"]) == {"decode_1", "prefill_256", FLOOR}
    assert min(document["ratios"].values()) > 0.0
    assert set(document["loading"]) == set(document["memory"]) - {"case"} == set(run.engines)
    drawn = engine_bench.files(document)
    assert drawn["engine.png"].startswith(b"\x89PNG")
    assert f"| {LLAMA} |" in drawn["engine.md"].decode()
