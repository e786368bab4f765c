"""`kakeya plan`: what many sessions of a model take."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kakeya_bench.engine.plan import SHAPE
from kakeya_worker import plan_command, sizing
from kakeya_worker.inventory.fleet import Fleet, NoRoom, Wanted, fleet
from kakeya_worker.inventory.footprint import Footprint
from kakeya_worker.inventory.runs_here import RunsHere
from kakeya_worker.inventory_settings import PlanSettings
from kakeya_worker.settings import WorkerSettings

QWEN3_06B = SHAPE | {"model_type": "qwen3", "rope_theta": 1_000_000, "dtype": "bfloat16"}
TAKES = Footprint(weights=1000, token=10, lane=500, sink=4, window=20)


@pytest.fixture
def qwen3(tmp_path: Path) -> str:
    """Its config.json alone."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_06B))
    return str(tmp_path)


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert plan_command.main(["--json", *words]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


WANTED = Wanted(num_sessions=100, num_at_once=7, num_tokens=50, num_turn_tokens=30, worker_bytes=2600, has_store=True)


def test_lanes_workers_redis_and_store() -> None:
    found = fleet(TAKES, WANTED)
    assert (found.num_lanes, found.num_workers) == (3, 3 + 1)
    assert found.live_bytes == 24 * 10
    assert found.redis_bytes == 100 * (7 * 1024 + 9 * 30)
    assert found.store_bytes == 100 * 3 * (240 + 2560)


def test_a_history_that_is_shorter_than_a_lane_and_a_turn() -> None:
    found = fleet(TAKES, replace(WANTED, num_tokens=5))
    assert (found.live_bytes, found.redis_bytes) == (50, 100 * (7 * 1024 + 9 * 5))


def test_without_a_store_the_journal_is_the_history() -> None:
    found = fleet(TAKES, replace(WANTED, has_store=False, num_at_once=100))
    assert (found.redis_bytes, found.store_bytes, found.num_workers) == (100 * (4 * 1024 + 9 * 50), 0, 34 + 1)


@pytest.mark.parametrize("num_bytes", [1, 1000, 1499])
def test_a_worker_without_room_for_one_lane(num_bytes: int) -> None:
    with pytest.raises(NoRoom):
        fleet(TAKES, replace(WANTED, worker_bytes=num_bytes))
    assert fleet(TAKES, replace(WANTED, worker_bytes=1500)).num_lanes == 1


def test_a_lane_is_that_of_a_worker(qwen3: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """The figures of design and documents: 114,688 bytes a token, and a plateau of 7,798,784 bytes."""
    monkeypatch.setenv(WorkerSettings.variable("weights"), "int8")
    found = planned(capsys, "--model", qwen3, "--sessions", "10", "--sink", "4", "--window", "64")
    assert (found["token_bytes"], found["live_bytes"]) == (114_688, 7_798_784)
    assert found["lane_bytes"] == (4 + 64 + 32 - 1 + 16 - 1) * 114_688
    assert {*found} == {"model", "weights", *Fleet.__dataclass_fields__}
    usual = sizing.usual_lane(40_960, 114_688, sink=4, chunk=32)
    assert usual is not None
    assert planned(capsys, "--model", qwen3, "--sessions", "10")["window"] == usual.window


def test_a_draft_model_has_weights_and_lanes_beside_those_of_the_model(
    qwen3: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker lays its lanes out by the bytes of both (`sizing.with_draft_lanes`); snapshots have the model's only."""
    monkeypatch.setenv(WorkerSettings.variable("weights"), "int8")
    words = ["--model", qwen3, "--sessions", "10", "--window", "64"]
    alone, nano = planned(capsys, *words), planned(capsys, "--model", "kakeya-nano", *words[2:])
    both = planned(capsys, *words, "--draft-model", "kakeya-nano")
    assert both["weights_bytes"] == alone["weights_bytes"] + nano["weights_bytes"]
    assert both["lane_bytes"] == alone["lane_bytes"] + nano["lane_bytes"]
    assert {name: both[name] for name in ("token_bytes", "live_bytes", "store_bytes")} == {
        name: alone[name] for name in ("token_bytes", "live_bytes", "store_bytes")
    }
    monkeypatch.setenv(PlanSettings.variable("draft_model"), "kakeya-nano")
    assert planned(capsys, *words) == both
    usual = sizing.usual_lane(40_960, 114_688 + nano["token_bytes"], sink=4, chunk=32)
    assert usual is not None
    assert planned(capsys, *words[:4])["window"] == usual.window
    assert plan_command.main(words) == 0
    assert "with kakeya-nano, which drafts" in capsys.readouterr().out


def test_a_draft_model_that_does_not_run_here(qwen3: str, capsys: pytest.CaptureFixture[str]) -> None:
    (Path(qwen3) / "config.json").write_text(json.dumps(QWEN3_06B | {"quantization": {"bits": 4}}))
    assert plan_command.main(["--model", "kakeya-nano", "--sessions", "5", "--draft-model", qwen3]) == 1
    assert f"{qwen3} does not run here: weights that are quantized" in capsys.readouterr().err


def test_what_people_read(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "kakeya-nano", "--sessions", "1000", "--at-once", "30", "--worker-bytes", "50000000"]
    assert plan_command.main(words) == 0
    name, *rows = capsys.readouterr().out.splitlines()
    assert name == "kakeya-nano"
    assert [row.split()[0] for row in rows] == ["weights", "a", "a", "a", "workers", "Redis", "up", "store"]
    assert "2 for 30 sessions at once, and one more" in rows[4]
    assert plan_command.main([*words[:4], "--no-store"]) == 0
    assert "idle sessions keep their lanes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "/nowhere"], "/nowhere is not a directory"),
        (["--model", "kakeya-nano", "--window", "10000000"], "no lane of this sink and window"),
        (["--model", "kakeya-nano", "--worker-bytes", "1000000"], "and a worker has 1,000,000"),
    ],
)
def test_what_cannot_be_planned(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_command.main(["--sessions", "5", *words]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("kakeya plan: error: ")
    assert said in line


def test_a_model_that_does_not_run_here(qwen3: str, capsys: pytest.CaptureFixture[str]) -> None:
    (Path(qwen3) / "config.json").write_text(json.dumps(QWEN3_06B | {"quantization": {"bits": 4}}))
    assert plan_command.main(["--model", qwen3, "--sessions", "5"]) == 1
    assert "quantized already do not run" in capsys.readouterr().err


def test_what_is_not_installed_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kakeya_worker.models.local_models", None)
    assert plan_command.main(["--model", "kakeya-nano", "--sessions", "5"]) == 1
    assert "pip install 'kakeya-worker[torch]'" in capsys.readouterr().err


def test_a_backend_that_does_not_say_how_it_holds_weights(
    qwen3: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunsHere, "weights", lambda *_, **__: ("", ""))
    assert plan_command.main(["--model", qwen3, "--sessions", "5"]) == 1
    assert "does not say how it holds the weights" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--sessions", "0"],
        ["--sessions", "five"],
        ["--sessions", "5", "--at-once", "6"],
        ["--sessions", "5", "--at-once", "4", "--no-store"],
        ["--sessions", "5", "--sink", "-1"],
    ],
)
def test_numbers_that_are_none(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        plan_command.main(["--model", "kakeya-nano", *words])
    assert raised.value.code == 2
    assert "error: " in capsys.readouterr().err.splitlines()[-1]
