"""What the worker makes of its settings when it loads."""

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import structlog

from kakeya_shared import installed_models, plugins
from kakeya_shared.contract.tokenizer_digest import tokenizer_digest
from kakeya_shared.process.service_process import StartError
from kakeya_worker.conformance.tools.tokenizer_files import NUM_BYTES, write_tokenizer
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.steps.scheduler import StepBudget
from kakeya_worker.loading import load_engine
from kakeya_worker.settings import WorkerSettings
from kakeya_worker.torch_backend import TorchVerifier
from tests.layers import save_fewer_layers

SIZES = ("--window", "64", "--lanes", "1", "--threads", "1", "--weights", "float32")


def test_an_installed_model_is_loaded_by_its_name(random_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_models, "names", lambda: ["mine"])
    monkeypatch.setattr(installed_models, "directory", lambda name: random_checkpoint)
    settings = WorkerSettings.parse(["--model", "mine", *SIZES])
    engine = load_engine(settings)
    engine.start()
    engine.shut_down()
    assert not engine.crashed.done()
    assert settings.model_name == "mine"


def test_an_installed_model_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Path:
        raise plugins.PluginError("it lacks something")

    monkeypatch.setattr(installed_models, "names", lambda: ["mine"])
    monkeypatch.setattr(installed_models, "directory", broken)
    with pytest.raises(StartError, match="it lacks something"):
        load_engine(WorkerSettings.parse(["--model", "mine", *SIZES]))


def test_steps_are_measured_when_the_worker_loads(random_checkpoint: Path) -> None:
    sizes = [*SIZES, "--lanes", "2", "--step-tokens", "64", "--step-milliseconds", "50"]
    with structlog.testing.capture_logs() as logs:
        engine = load_engine(WorkerSettings.parse(["--model", str(random_checkpoint), *sizes]))
    assert [line["event"] for line in logs].count("step costs") == 1
    assert engine._scheduler.budget == StepBudget(64, seconds=0.05)


@pytest.mark.parametrize("flag", ["--model", "--draft-model"])
def test_a_model_on_a_disk_that_fails(random_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
    whole = TorchVerifier.__init__

    def failing(self: TorchVerifier, model: str, **options: Any) -> None:
        if model == "/failing/disk":
            raise OSError(errno.EIO, "Input/output error")
        whole(self, model, **options)

    monkeypatch.setattr(TorchVerifier, "__init__", failing)
    models = {"--model": str(random_checkpoint), flag: "/failing/disk"}
    drafting = ["--speculation", "draft-model"] if flag == "--draft-model" else []
    flags = [each for pair in models.items() for each in pair]
    with pytest.raises(StartError, match=r"/failing/disk cannot be loaded: .*Input/output error"):
        load_engine(WorkerSettings.parse([*flags, *drafting, *SIZES]))


def _load_beside(checkpoint: Path, directory: Path, tokenizer: str) -> Engine:
    """An engine over a copy of a checkpoint with that tokenizer.json."""
    shutil.copytree(checkpoint, directory, dirs_exist_ok=True)
    (directory / "tokenizer.json").write_text(tokenizer)
    return load_engine(WorkerSettings.parse(["--model", str(directory), *SIZES]))


def test_the_facts_have_the_digest_of_the_tokenizer(random_checkpoint: Path, tmp_path: Path) -> None:
    engine = _load_beside(random_checkpoint, tmp_path, '{"model": {"vocab": {"a": 0}}}')
    assert engine.facts.tokenizer_digest == tokenizer_digest(tmp_path) != ""


def test_a_worker_needs_no_tokenizer_and_minds_no_broken_one(random_checkpoint: Path, tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        whole = load_engine(WorkerSettings.parse(["--model", str(random_checkpoint), *SIZES]))
        assert whole.facts.tokenizer_digest == ""
        assert [line for line in logs if line["log_level"] == "warning"] == []
        assert _load_beside(random_checkpoint, tmp_path, "no JSON").facts.tokenizer_digest == ""
    (warning,) = [line for line in logs if line["log_level"] == "warning"]
    assert "tokenizer.json cannot be read" in warning["error"]


def _with_tokenizer(checkpoint: Path, directory: Path, num_bytes: int = NUM_BYTES) -> str:
    shutil.copytree(checkpoint, directory)
    write_tokenizer(directory, num_bytes)
    return str(directory)


def test_a_draft_model_comes_with_lanes_of_its_own(random_checkpoint: Path, tmp_path: Path) -> None:
    model = _with_tokenizer(random_checkpoint, tmp_path / "model")
    draft_model = str(save_fewer_layers(Path(model), tmp_path / "draft", 2))
    plain = load_engine(WorkerSettings.parse(["--model", model, *SIZES])).lanes.totals()
    with structlog.testing.capture_logs() as logs:
        engine = load_engine(WorkerSettings.parse(["--model", model, "--draft-model", draft_model, *SIZES]))
    assert engine.proposers.draft_model is not None
    assert engine.lanes.totals().lane_bytes - plain.lane_bytes == engine.proposers.draft_model.lane_bytes
    assert engine.proposers.default == "none"
    assert [line["event"] for line in logs].count("step costs") == 2
    (loaded,) = [line for line in logs if line["event"] == "loaded"]
    assert loaded["draft_model"] == draft_model


def test_its_lanes_are_in_the_slab(random_checkpoint: Path, tmp_path: Path) -> None:
    model = _with_tokenizer(random_checkpoint, tmp_path / "model")
    draft_model = str(save_fewer_layers(Path(model), tmp_path / "draft", 2))
    flags = ["--model", model, "--slab-bytes", "3000000", "--window", "64", "--threads", "1"]
    numbers = [
        load_engine(WorkerSettings.parse([*flags, *further])).lanes.num_lanes
        for further in ([], ["--draft-model", model], ["--draft-model", draft_model])
    ]
    assert numbers[1] == numbers[0] // 2 < numbers[2] < numbers[0]


@pytest.mark.parametrize(
    ("draft_bytes", "says"), [(200, "digests are [0-9a-f]+ and [0-9a-f]+"), (None, "are none and")]
)
def test_a_draft_model_of_other_tokens_is_refused(
    random_checkpoint: Path, tmp_path: Path, draft_bytes: int | None, says: str
) -> None:
    model = _with_tokenizer(random_checkpoint, tmp_path / "model")
    other = str(random_checkpoint)
    if draft_bytes is not None:
        other = _with_tokenizer(random_checkpoint, tmp_path / "other", draft_bytes)
    with pytest.raises(StartError, match=f"--draft-model {other} and --model {model} must have the same.*{says}"):
        load_engine(WorkerSettings.parse(["--model", model, "--draft-model", other, *SIZES]))


def test_a_draft_model_that_cannot_be_loaded_is_named(random_checkpoint: Path, tmp_path: Path) -> None:
    flags = ["--model", str(random_checkpoint), "--draft-model", str(tmp_path / "nowhere"), *SIZES]
    with pytest.raises(StartError, match="nowhere is not a directory"):
        load_engine(WorkerSettings.parse(flags))
    broken = save_fewer_layers(random_checkpoint, tmp_path / "broken", 2)
    (broken / "model.safetensors").unlink()
    (broken / "model.safetensors").mkdir()
    with pytest.raises(StartError, match="broken"):
        load_engine(WorkerSettings.parse(["--model", str(random_checkpoint), "--draft-model", str(broken), *SIZES]))


def test_a_draft_model_whose_positions_the_sinks_take_is_refused(random_checkpoint: Path, tmp_path: Path) -> None:
    model = _with_tokenizer(random_checkpoint, tmp_path / "model")
    draft_model = save_fewer_layers(Path(model), tmp_path / "draft", 2)
    config = json.loads((draft_model / "config.json").read_text())
    (draft_model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4}))
    with pytest.raises(StartError, match="the draft model has 4 positions"):
        load_engine(WorkerSettings.parse(["--model", model, "--draft-model", str(draft_model), *SIZES]))
