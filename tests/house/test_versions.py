"""One version for all parts, written in one place."""

import json
import shutil
import tomllib
from pathlib import Path

import pytest
import set_version
import yaml

from tests.house.packages import PACKAGES, ROOT


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What has a version, of this repository."""
    for path in (set_version.SOURCE, *set_version.parts(), *set_version.ELSEWHERE):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    return tmp_path


def test_all_parts_have_the_version_of_the_house() -> None:
    assert list(set_version.differing()) == []


def test_every_package_is_of_a_part() -> None:
    parts = {ROOT / each.parent for each in set_version.parts()}
    assert {each.parent.parent for each in PACKAGES} <= parts


def test_a_new_version_is_written_everywhere(copy: Path) -> None:
    set_version.write("7.8.9", copy)
    assert list(set_version.differing(copy)) == []
    local = tomllib.loads((copy / "services/local/pyproject.toml").read_text())["project"]
    assert local["version"] == "7.8.9"
    assert [each for each in local["dependencies"] if each.startswith("kakeya")] == [
        f"{each}==7.8.9"
        for each in (
            *("kakeya[tokenizer]", "kakeya-nano", "kakeya-shared", "kakeya-stubs"),
            *("kakeya-http-shim", "kakeya-router", "kakeya-worker[torch]"),
        )
    ]
    assert "psutil>=6" in local["dependencies"]
    chart = yaml.safe_load((copy / "ops/helm/kakeya/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == ("7.8.9", "7.8.9")
    lock = json.loads((copy / "sdks/typescript/package-lock.json").read_text())
    assert (lock["version"], lock["packages"][""]["version"]) == ("7.8.9", "7.8.9")
    assert set_version.write("7.8.9", copy) == []


@pytest.mark.parametrize(
    ("path", "old", "new", "said"),
    [
        ("shared/pyproject.toml", '\nversion = "0', '\nversion = "1', "shared/pyproject.toml:7: 1"),
        (
            "services/router/pyproject.toml",
            "kakeya-stubs==0",
            "kakeya-stubs==1",
            "services/router/pyproject.toml:14: 1",
        ),
        ("ops/helm/kakeya/Chart.yaml", "appVersion: 0", "appVersion: 1", "ops/helm/kakeya/Chart.yaml:7: 1"),
        ("models/nano/pyproject.toml", "\nversion = ", "\nrelease = ", "models/nano/pyproject.toml: names no version"),
    ],
)
def test_what_differs_is_named(copy: Path, path: str, old: str, new: str, said: str) -> None:
    text = (copy / path).read_text()
    assert old in text
    (copy / path).write_text(text.replace(old, new))
    (found,) = set_version.differing(copy)
    assert found.startswith(said)


@pytest.mark.parametrize("wrong", ["", "1.2", "v1.2.3", "1.2.3-rc.1", "1.2.3\n"])
def test_what_is_no_version_is_refused(copy: Path, wrong: str) -> None:
    before = (copy / set_version.SOURCE).read_text()
    with pytest.raises(set_version.VersionError):
        set_version.write(wrong, copy)
    assert (copy / set_version.SOURCE).read_text() == before
