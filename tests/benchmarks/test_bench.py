"""What all benches have in common: what is printed, written and said by the exit status."""

import json
from pathlib import Path
from typing import Any

import pytest

from kakeya_bench.report.quantities import Seconds
from kakeya_bench.report.verdict import at_most, exit_status
from kakeya_bench.rivals.command import CommandFailed
from kakeya_shared.settings.service import setting
from tests.benchmarks import bench, pairs
from tests.benchmarks.bench import BenchSettings, Found, Numbers, Stage


class Settings(BenchSettings):
    taken: float = setting(1.0, "of a call", unit="seconds")
    windows: Numbers = setting((64, 2048), "windows")


def measure(settings: Settings, stage: Stage) -> Found:
    step = stage.steps(2, start=0.5)
    step("first")
    (stage.directory / "file").touch()
    rows = [{"window": window, "seconds": [Seconds(0.25), Seconds(1.0), Seconds(2.0)]} for window in settings.windows]
    document = {"sizes": rows, "one": {"p50_ms": {"a": 1.0}}, "other": {"p50_ms": {"a": 2.5}}, "ratio": 1.0625}
    return document, [
        at_most("slowest", "a call", Seconds(settings.taken), Seconds(2.0)),
        at_most("first", "the ratio", 1.0, 1.0),
    ]


def test_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(Settings, measure, []) == 0
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert printed == [
        str(__doc__),
        "SIZES WINDOW SECONDS",
        "1 64 1.00 s (median of 3), at most 2.00 s",
        "2 2,048 1.00 s (median of 3), at most 2.00 s",
        "P50 MS A",
        "one 1.000",
        "other 2.500",
        "NAME VALUE",
        "ratio 1.062",
        "GATE OUTCOME FOUND",
        "slowest passed a call 1.00 s, at most 2.00 s",
        "first passed the ratio 1.00, at most 1.00",
        "all bounds are kept",
    ]


def test_a_broken_bound_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(Settings, measure, ["--taken", "2.5"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "BROKEN: slowest (a call 2.50 s, at most 2.00 s)"


def test_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAKEYA_BENCH_TAKEN", "1.5")
    assert bench.main(Settings, measure, ["--json", str(tmp_path / "new" / "found.json"), "--windows", "64,128"]) == 0
    document = json.loads((tmp_path / "new" / "found.json").read_text())
    assert document["options"] == {"taken": 1.5, "windows": [64, 128]}
    assert document["sizes"][0] == {"window": 64, "seconds": [0.25, 1.0, 2.0]}
    assert document["gates"]["slowest"]["figures"] == {"value": 1.5, "bound": 2.0}
    assert {"measured_at", "environment", "one", "other", "ratio"} <= document.keys()


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [(KeyboardInterrupt(), 130, ""), (CommandFailed("pip: [no]"), 2, "test_bench: error: pip: [no]\n")],
)
def test_what_ends_a_bench(error: Any, status: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(settings: Settings, stage: Stage) -> Found:
        raise error

    assert bench.main(Settings, fail, []) == status
    assert capsys.readouterr() == ("", said)


def test_what_one_side_takes_beyond_the_other() -> None:
    assert [*pairs.in_turn("ab", 3)] == ["ab", "ba", "ab"]
    slow, slower = {"call": [0.1, 0.2, 0.9]}, {"call": [0.4, 0.3, 0.9]}
    found = pairs.added([[slow, slower], [slow, slow]], ("a", "b"), {"call": 100.0})
    assert found["call"]["p50_ms"] == pytest.approx({"a": 200.0, "b": 300.0})
    assert found["call"]["difference_ms"] == pytest.approx(100.0)
    assert found["call"]["interval_95_ms"] == pytest.approx([0.0, 200.0])
    assert found["call"]["difference_by_pair_ms"] == pytest.approx([200.0, 0.0])
    (verdict,) = pairs.verdicts({"call": {**found["call"], "bound_ms": 99.0}})
    assert verdict.reason == "milliseconds more: 100.000, at most 99.000"
    assert exit_status([verdict]) == 1
