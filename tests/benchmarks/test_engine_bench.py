"""`make bench-engine`: its arithmetic, its report, and a run on a tiny model."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kakeya_bench.engine import contestants, int8_kv, memory_read, page, report, run
from kakeya_bench.engine.contestants import BFLOAT16, FAR, INT8, INT8_KV, LLAMA, LLAMA_Q8_KV, READ, TRANSFORMERS
from kakeya_bench.engine.plan import DECODE, PREFILL, SHAPE, Case, Plan
from kakeya_bench.engine.report import FLOOR, LEAST, MOST
from kakeya_bench.engine.run import Run, burst_length, measured, order
from kakeya_bench.engine.settings import EngineSettings
from kakeya_bench.report import console
from kakeya_bench.report.verdict import Outcome, exit_status
from kakeya_bench.rivals import llama_cpp
from kakeya_bench.rivals.checkpoint import save_random_qwen3
from kakeya_bench.statistics import intervals

TINY = Plan(
    shape={"max_position_embeddings": 1024},
    windows=(64, 256),
    far_window=512,
    num_sessions=(1, 3),
    num_prefill_tokens=(64, 256),
    num_rounds=2,
    burst_seconds=0.01,
)
ENGINES = [INT8, INT8_KV, BFLOAT16, TRANSFORMERS, LLAMA, LLAMA_Q8_KV]
ALL_LEAST = {**LEAST, **int8_kv.bounds("avx512vnni")}


def test_a_session_without_a_window_ends_with_as_many_keys() -> None:
    cases = [Case(DECODE, 8, 64), Case(DECODE, 1, 2048), Case(PREFILL, 64, 2048), Case(PREFILL, 256, 64)]
    assert [case.name for case in cases] == ["decode_8", "decode_1_w2048", "prefill_64_w2048", "prefill_256"]
    assert [case.num_sessions for case in cases] == [8, 1, 1, 1]
    assert [case.num_held_tokens + case.num_new_tokens for case in cases] == [64, 2048, 2048, 256]


def test_every_bound_speaks_of_a_case_that_is_measured() -> None:
    names = {case.name for case in Plan().all_cases}
    assert {*LEAST, *(bound.case for bound in int8_kv.BOUNDS)} <= names
    assert [case.name for case in Plan().far_cases] == ["decode_1_w16384", "prefill_512_w16384"]


def test_bounds_of_int8_kv_follow_the_kernel() -> None:
    best, other = int8_kv.bounds("avx512vnni"), int8_kv.bounds("avx2")
    assert (best["int8_kv_prefill_512_w2048_over_llama"], other["int8_kv_prefill_512_w2048_over_llama"]) == (2.1, 1.5)
    assert best["int8_kv_decode_1_over_bfloat16_kv"] == other["int8_kv_decode_1_over_bfloat16_kv"] == 0.98
    assert int8_kv.bounds(None) == other


def test_a_ratio_is_taken_within_each_round() -> None:
    """The machine is slow for both in the second round, and ten times as fast for one of them in the third."""
    int8 = [[1.0], [10.0], [1.0]]
    seconds = {"decode_1": {LLAMA: [[2.0], [20.0], [0.2]], INT8: int8, INT8_KV: int8, READ: [[0.8], [8.0], [0.8]]}}
    found = report.ratios(seconds, "decode_1")
    assert found["int8_kv_decode_1_over_llama"] == found["decode_1"]
    assert int8_kv.of_case(found, "decode_1") == {INT8: intervals.of_median([1.0] * 3), LLAMA: found["decode_1"]}
    assert found["decode_1"].estimate == 2.0
    assert 0.2 <= found["decode_1"].low < 2.0 == found["decode_1"].high
    assert found[FLOOR].estimate == 1.25


def test_a_burst_counts_with_its_median() -> None:
    seconds = {"prefill_64": {INT8: [[1.0, 3.0, 50.0], [2.0, 2.0, 2.0], [9.0]]}}
    assert report.rounds(seconds, "prefill_64", INT8) == [3.0, 2.0, 9.0]
    assert report.typical(seconds, "prefill_64", INT8) == 3.0


def test_bounds_are_least_speeds_and_a_most_for_the_floor() -> None:
    kept = {name: intervals.of_median([bound]) for name, bound in {**ALL_LEAST, **MOST}.items()}
    assert exit_status(report.verdicts(kept, "avx512vnni")) == 0
    missed = {**kept, "decode_8": intervals.of_median([2.4]), FLOOR: intervals.of_median([1.3])}
    verdicts = report.verdicts(missed, "avx512vnni")
    assert {verdict.gate for verdict in verdicts if verdict.outcome is Outcome.FAILED} == {"decode_8", FLOOR}
    assert exit_status(verdicts) == 1


def test_a_burst_lasts_about_as_long_whatever_is_measured() -> None:
    assert burst_length(Case(DECODE, 1, 64), 0.02, burst_seconds=0.3) == 15
    assert burst_length(Case(DECODE, 8, 2048), 2.0, burst_seconds=0.3) == 3
    assert burst_length(Case(PREFILL, 512, 64), 2.0, burst_seconds=0.3) == 1
    assert burst_length(Case(DECODE, 1, 64), 1e-6, burst_seconds=0.3) == 30


def test_nobody_always_comes_after_the_same_one() -> None:
    rounds = [order(ENGINES, number) for number in range(4)]
    assert all(sorted(each) == sorted(ENGINES) for each in rounds)
    for name in ENGINES:
        assert len({each.index(name) for each in rounds}) > 1
        assert len({each[each.index(name) - 1] for each in rounds}) > 1


def test_a_decode_step_reads_every_matrix_once() -> None:
    """28 layers of 15,728,640 weights, and the head, which is the embedding."""
    assert memory_read.int8_weight_bytes(SHAPE) == 28 * 15_728_640 + 151_936 * 1024 == 595_984_384


def test_each_flag_has_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAKEYA_BENCH_ROUNDS", "3")
    asked = EngineSettings.parse(["--json", "engine.json"])
    assert (asked.rounds, asked.output, asked.json_file) == (3, Path("build/engine"), Path("engine.json"))
    assert EngineSettings.parse(["--rounds", "2"]).rounds == 2


def _played(plan: Plan, directory: Path) -> Run:
    """A run in which everybody takes a second for everything, and llama.cpp three."""
    engines = contestants.engines(directory, directory / "Q8_0.gguf", plan, directory, directory)
    reader = contestants.Entrant(READ, "memory_read", {})
    settings = {"flash_attention": True, "unified": True, "ubatch": 512, "repacked": True}
    tried = [{**settings, "seconds": 2.0}, {**settings, "flash_attention": False, "seconds": 1.0}]
    opened: dict[str, Any] = {name: {"history_tokens": 500} for name in ENGINES}
    cases = plan.all_cases
    of_llama = {"settings": {case.name: settings for case in cases}, "tried": {case.name: tried for case in cases}}
    opened |= {LLAMA: of_llama, LLAMA_Q8_KV: of_llama}
    memory = {"peak_rss_bytes": 2 << 30, "peak_anonymous_bytes": None}
    loads = {name: {"seconds": 5.0, "version": "1", "system": "CPU", "repacks": False, **memory} for name in ENGINES}
    loads[INT8_KV] = {**loads[INT8_KV], "kernel": "avx512vnni"}
    took = {name: [[3.0 if name in (LLAMA, LLAMA_Q8_KV) else 1.0]] for name in ENGINES}
    far = {name: took[name] for name in FAR}
    return Run(
        plan,
        {entrant.name: entrant for entrant in engines},
        reader,
        cold=loads,
        cached={**loads, READ: {"num_bytes": 1000}},
        opened=dict.fromkeys((*plan.windows, plan.far_window), opened),
        seconds={case.name: far if case in plan.far_cases else {**took, READ: [[0.9]]} for case in cases},
        large_chunk={"prefill_64": {INT8: [[0.5]], BFLOAT16: [[0.7]]}},
        serving=dict.fromkeys(ENGINES, memory),
    )


def test_a_report_says_and_shows_what_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(json.dumps(report.document(_played(Plan(), tmp_path)), allow_nan=False))
    assert document["ratios"] == {
        **dict.fromkeys(LEAST, 3.0),
        **{bound.gate: 3.0 if bound.rival == LLAMA else 1.0 for bound in int8_kv.BOUNDS},
        FLOOR: pytest.approx(1 / 0.9),
    }
    first, last = ({n: r["estimate"] for n, r in document["cases"][i]["int8_kv_ratios"].items()} for i in (0, -1))
    assert first == {INT8: 1.0, TRANSFORMERS: 1.0, LLAMA: 3.0, LLAMA_Q8_KV: 3.0}
    assert last == {INT8: 1.0, LLAMA: 3.0, LLAMA_Q8_KV: 3.0}
    assert document["floor"]["bytes_per_second"] == pytest.approx(1000 / 0.9)
    assert document["cases"][0]["context"]["others"] == {"tokens_before": 63, "keys": [64, 64]}
    drawn = page.files(document)
    assert sorted(drawn) == ["decode.png", "engine.html", "prefill.png"]
    assert drawn["decode.png"].startswith(b"\x89PNG")
    said = drawn["engine.html"].decode()
    for words in (
        "3.00 (95 %: 3.00 to 3.00)",
        "at least 2.5",
        "decode 8, window 2,048",
        "prefill 512, window 16,384",
        "2.00 GiB",
        "ubatch 512",
    ):
        assert words in said
    console.print_sections(*page.summary(document))
    assert "passed" in capsys.readouterr().out


def test_what_was_measured_so_far_is_all_that_was_measured(tmp_path: Path) -> None:
    played = _played(Plan(), tmp_path)
    part = json.loads(json.dumps(report.part(played), allow_nan=False))
    assert (part["seconds"], sorted(part["sessions"])) == (played.seconds, ["16384", "2048", "64"])


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_measures_everybody_but_llama_cpp(tmp_path: Path) -> None:
    checkpoint = save_random_qwen3(tmp_path / "model", **TINY.shape)
    entrants = contestants.engines(checkpoint, checkpoint, TINY, tmp_path / "cache", tmp_path)[:-2]
    shape = json.loads((checkpoint / "config.json").read_text())
    reader = memory_read.entrant(memory_read.int8_weight_bytes(shape), TINY, tmp_path)
    cases = TINY.cases(64)
    with ExitStack() as stack:
        loaded = {each.name: stack.enter_context(each.running()) for each in (*entrants, reader)}
        assert all(contestant.load()["peak_rss_bytes"] > 1 << 20 for contestant in loaded.values())
        for entrant in entrants:
            loaded[entrant.name].open(cases)
        seconds = measured(dict.fromkeys(cases, loaded), 2, 0.01)
        assert loaded[INT8].serving_memory(cases[0], 1)["peak_anonymous_bytes"] > 1 << 20
    assert [*seconds] == ["decode_1", "decode_3", "prefill_64", "prefill_256"]
    for by_name in seconds.values():
        assert [*by_name] == [INT8, INT8_KV, BFLOAT16, TRANSFORMERS, READ]
        assert min(min(burst) for rounds in by_name.values() for burst in rounds) > 0.0


@pytest.mark.heavy
@pytest.mark.skipif(not llama_cpp.BINDING.is_ready, reason="llama.cpp is not built; `make bench-engine` builds it")
@pytest.mark.timeout(600)
def test_measures_everybody_in_every_case(tmp_path: Path) -> None:
    """Without what it says about time: other tests may be running beside it, and the model is a tiny one."""
    parts = list[dict[str, Any]]()
    played = run.played(TINY, tmp_path, lambda run: parts.append(json.loads(json.dumps(report.part(run)))))
    assert [sorted(each["sessions"]) for each in parts] == [["64"], ["256", "64"], ["256", "512", "64"]]
    assert parts[-1]["seconds"] == played.seconds
    document = json.loads(json.dumps(report.document(played), allow_nan=False))
    names = ["decode_1", "decode_3", "prefill_64", "prefill_256"]
    far = ["decode_1_w512", "prefill_256_w512"]
    assert [case["name"] for case in document["cases"]] == [*names, *(f"{name}_w256" for name in names), *far]
    for case in document["cases"]:
        assert list(case["seconds"]) == [*FAR] if case["name"] in far else ENGINES
        assert min(min(rounds) for rounds in case["rounds"].values()) > 0.0
        num_rounds = TINY.num_far_rounds if case["name"] in far else TINY.num_rounds
        assert {len(rounds) for rounds in case["rounds"].values()} == {num_rounds}
        assert case["context"]["kakeya"]["tokens_before_at_least"] > case["window"]
        assert document["sessions"][str(case["window"])][LLAMA]["settings"][case["name"]]
    gates = {int8_kv.gate(name, INT8) for name in ("decode_1", "prefill_64", "prefill_256")}
    assert set(document["ratios"]) == {"decode_1", "prefill_256", FLOOR, *gates}
    assert min(document["ratios"].values()) > 0.0
    assert set(document["loading"]) == set(document["memory"]) - {"case"} == set(ENGINES)
    assert page.files(document)["engine.html"]
