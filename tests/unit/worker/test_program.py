"""What the worker makes of its settings when it loads."""

import shutil
from pathlib import Path

import pytest
import structlog

from kakeya_shared import installed_models, plugins
from kakeya_shared.contract.tokenizer_digest import tokenizer_digest
from kakeya_shared.process.service_process import StartError
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.steps.scheduler import StepBudget
from kakeya_worker.program import load_engine
from kakeya_worker.settings import WorkerSettings

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
