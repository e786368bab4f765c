"""Which name stands for which model: a directory, an installed one, or one of the hub."""

import sys
from importlib.metadata import EntryPoint, version
from pathlib import Path

import pytest

from kakeya_shared import installed_models, plugins

MODULE = "a_model_package"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed model called `mine`; returns its directory."""
    checkpoint = tmp_path / "site" / "checkpoint"
    checkpoint.mkdir(parents=True)
    (tmp_path / "site" / f"{MODULE}.py").write_text(f"def directory(): return {str(checkpoint)!r}\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    point = EntryPoint("mine", f"{MODULE}:directory", installed_models.GROUP)

    def entry_points(group: str, name: str | None = None) -> list[EntryPoint]:
        return [point] if group == installed_models.GROUP and name in (None, "mine") else []

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    return checkpoint


def test_an_installed_model_is_found_by_its_name(package: Path) -> None:
    assert installed_models.names() == ["mine"]
    assert installed_models.directory("mine") == package
    assert installed_models.resolve("mine") == str(package)


def test_a_directory_of_that_name_wins(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert installed_models.resolve("mine") == str(package), "an empty directory is no model"
    (tmp_path / "here" / "mine" / "config.json").touch()
    assert installed_models.resolve("mine") == "mine"
    assert installed_models.resolve(str(tmp_path)) == str(tmp_path)


@pytest.mark.parametrize("model", ["Qwen/Qwen3-0.6B", "theirs", "/nowhere"])
def test_everything_else_is_left_as_it_is(package: Path, model: str) -> None:
    assert installed_models.resolve(model) == model


def test_a_package_that_lacks_something_says_so(package: Path) -> None:
    (package.parent / f"{MODULE}.py").write_text("import a_missing_module\n")
    with pytest.raises(plugins.PluginError, match="'mine' needs the module 'a_missing_module'"):
        installed_models.resolve("mine")


@pytest.mark.parametrize("source", ["", "def directory(): raise RuntimeError('no luck')\n", "directory = 3\n"])
def test_a_package_that_is_broken_is_a_typed_error(package: Path, source: str) -> None:
    (package.parent / f"{MODULE}.py").write_text(source)
    with pytest.raises(plugins.PluginError, match=r"^the installed model 'mine' is broken: \w+Error: "):
        installed_models.resolve("mine")


def test_the_package_that_brings_a_model(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = package.parent / "some_package-7.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: some-package\nVersion: 7\n")
    (metadata / "entry_points.txt").write_text(f"[{installed_models.GROUP}]\nhis = {MODULE}:directory\n")
    assert version("some-package") == "7"
    assert installed_models.distribution("his") == "some-package"
    assert installed_models.distribution("nobodys") == "nobodys"
    made_up = EntryPoint("his", f"{MODULE}:directory", installed_models.GROUP)
    monkeypatch.setattr(installed_models, "entry_points", lambda **_: [made_up])
    assert installed_models.distribution("his") == "his"
