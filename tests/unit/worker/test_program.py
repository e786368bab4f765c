"""What the worker makes of its settings when it loads."""

from pathlib import Path

import pytest

from kakeya_shared import installed_models, plugins
from kakeya_shared.service_process import StartError
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
