"""What a report says of the host."""

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
import pytest

from kakeya_bench.report import environment as module
from kakeya_bench.report.environment import environment


def test_the_host_is_described() -> None:
    found = environment()
    assert found == json.loads(json.dumps(found)), "plain values"
    assert found["python"] == platform.python_version()
    assert (found["platform"], found["machine"]) == (platform.platform(), platform.machine())
    assert found["num_processors"] == os.cpu_count()
    assert found["memory_bytes"] == psutil.virtual_memory().total


def test_only_what_is_installed_has_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(name: str) -> str:
        if name == "torch":
            raise PackageNotFoundError(name)
        return f"1-{name}"

    assert environment()["versions"]["kakeya"] == version("kakeya")  # type: ignore[index]
    monkeypatch.setattr(module, "version", installed)
    versions = environment()["versions"]
    assert versions == {name: f"1-{name}" for name in module._DISTRIBUTIONS if name != "torch"}
    assert len(versions) > 5


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("processor\t: 0\nmodel name\t: A: 2 GHz\n\nprocessor\t: 1\nmodel name\t: Other\n", "A: 2 GHz"),
        ("processor\t: 0\nBogoMIPS\t: 48.00\n", "said by the platform"),
        (None, "said by the platform"),
    ],
)
def test_the_processor_has_a_name(
    content: str | None, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpuinfo"
    if content is not None:
        file.write_text(content)
    asked: list[str] = []

    def instead(path: str) -> Path:
        asked.append(path)
        return file

    monkeypatch.setattr(module, "Path", instead)
    monkeypatch.setattr(platform, "processor", lambda: "said by the platform")
    assert environment()["cpu"] == name
    assert asked == ["/proc/cpuinfo"]
