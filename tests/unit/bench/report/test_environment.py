"""What a report says of the host."""

import json
import os
import platform
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import psutil
import pytest

from kakeya_bench.report import environment as module
from kakeya_bench.report.environment import environment


def test_the_host_is_described_with_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(name: str) -> str:
        if name == "torch":
            raise PackageNotFoundError(name)
        return f"1-{name}"

    monkeypatch.setattr(module, "version", installed)
    found = environment()
    assert found == json.loads(json.dumps(found)), "plain values"
    assert (found["python"], found["machine"]) == (platform.python_version(), platform.machine())
    assert (found["num_processors"], found["memory_bytes"]) == (os.cpu_count(), psutil.virtual_memory().total)
    assert found["versions"] == {name: f"1-{name}" for name in module._DISTRIBUTIONS if name != "torch"}


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
    if content is not None:
        (tmp_path / "cpuinfo").write_text(content)
    files = {"/proc/cpuinfo": tmp_path / "cpuinfo"}
    monkeypatch.setattr(module, "Path", files.__getitem__)
    monkeypatch.setattr(platform, "processor", lambda: "said by the platform")
    assert environment()["cpu"] == name
