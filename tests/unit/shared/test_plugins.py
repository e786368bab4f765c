"""Plugins are found by entry point, loaded by name, and say the cure when they cannot be had."""

import importlib.metadata
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from kakeya_shared import plugins

GROUP = "kakeya.test_seam"
POINTS = EntryPoints(
    [
        EntryPoint("good", "json:loads", GROUP),
        EntryPoint("broken", "no_such_module_here:Thing", GROUP),
        EntryPoint("half", "half_a_module:Thing", GROUP),
    ]
)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two plugins of a seam of the test's own."""
    real = importlib.metadata.entry_points
    monkeypatch.setattr(
        plugins, "entry_points", lambda **query: POINTS.select(**query) if query["group"] == GROUP else real(**query)
    )


def test_names_are_sorted_and_nothing_is_imported() -> None:
    assert plugins.names(GROUP) == ["broken", "good", "half"]
    assert plugins.names("kakeya.no_such_seam") == []


def test_a_plugin_is_loaded_by_name() -> None:
    assert plugins.load(GROUP, "good")("[1]") == [1]


def test_an_unknown_name_tells_those_that_are_known() -> None:
    with pytest.raises(plugins.PluginError, match=r"named 'other' \(installed: broken, good, half\)$"):
        plugins.load(GROUP, "other")
    with pytest.raises(plugins.PluginError, match="installed: none"):
        plugins.load("kakeya.no_such_seam", "x")


def test_a_missing_module_tells_the_install_line() -> None:
    with pytest.raises(
        plugins.PluginError, match="needs the module 'no_such_module_here'; install it with: pip install x"
    ):
        plugins.load(GROUP, "broken", install="pip install x")


def test_a_module_that_cannot_be_imported_tells_the_install_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_a_module.py").write_text("raise ImportError('lib.so: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(plugins.PluginError, match=r"cannot be imported: lib\.so: .*; install it with: pip install x"):
        plugins.load(GROUP, "half", install="pip install x")
