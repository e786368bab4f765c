"""What a token's KV weighs in a rival."""

import json
from pathlib import Path

import pytest

from kakeya.bench.compare import rival_kv
from kakeya.bench.compare.rival_kv import RivalKv
from kakeya.bench.kv_bytes import ConfigError
from kakeya.cli.flags import installed_models
from kakeya.cli.flags.installed_models import BrokenModel
from tests.unit.sdk.bench.playing import CONFIG


def test_of_the_config_that_is_named(config: Path) -> None:
    assert rival_kv.gather("whatever", config) == RivalKv(4 * 2 * 16 * 2 * 2)


def test_one_that_is_named_and_broken_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json"):
        rival_kv.gather("whatever", tmp_path)


def test_of_the_installed_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.setattr(installed_models, "directory", {"m": tmp_path}.get)
    assert rival_kv.gather("m", None) == RivalKv(512)
    assert rival_kv.gather("n", None) == RivalKv(None, "the config.json of 'n' is not known: name it with --config")


def test_an_installed_model_without_a_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_models, "directory", lambda name: tmp_path)
    found = rival_kv.gather("m", None)
    assert found.bytes_per_token is None
    assert "config.json: No such file" in found.why_not


def test_an_installed_model_that_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(name: str) -> Path:
        raise BrokenModel(f"{name} is broken")

    monkeypatch.setattr(installed_models, "directory", breaks)
    assert rival_kv.gather("m", None) == RivalKv(None, "m is broken")
