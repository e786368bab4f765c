"""Threads by affinity and quota."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kakeya_shared.process import processors

_CPU_GROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))  # version 1, 2


@pytest.fixture(autouse=True)
def four_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)


def _usable(directory: Path, own: str, **quotas: str) -> int:
    (directory / "own").write_text(own)
    for name, quota in quotas.items():
        group = directory / "cgroups" / name.replace("__", "/").removeprefix("root")
        group.mkdir(parents=True, exist_ok=True)
        (group / "cpu.max").write_text(quota + "\n")
    return processors.usable(directory / "cgroups", directory / "own")


def test_without_a_quota_affinity_counts(tmp_path: Path) -> None:
    assert _usable(tmp_path, "0::/\n", root="max 100000") == 4
    assert processors.usable(tmp_path / "none", tmp_path / "none") == 4


@pytest.mark.parametrize(
    ("quota", "expected"), [("200000 100000", 2), ("150000 100000", 2), ("1000 100000", 1), ("900000 100000", 4)]
)
def test_a_quota_is_rounded_up(tmp_path: Path, quota: str, expected: int) -> None:
    assert _usable(tmp_path, "1:name=systemd:/\n0::/\n", root=quota) == expected


def test_the_smallest_quota_around_counts(tmp_path: Path) -> None:
    assert _usable(tmp_path, "0::/pod/worker\n", pod="100000 100000", pod__worker="max 100000") == 1


@pytest.mark.parametrize(
    ("path", "quota", "expected"),
    [("/pod", "150000", 2), ("/pod/worker", "100000", 1), ("/outside/of/what/is/mounted", "100000", 1), ("/", "-1", 4)],
)
@pytest.mark.parametrize("controllers", ["cpu", "cpu,cpuacct"])
def test_a_quota_of_control_groups_of_version_1(
    tmp_path: Path, controllers: str, path: str, quota: str, expected: int
) -> None:
    (tmp_path / "own").write_text(f"5:cpuset:/pod\n4:{controllers}:{path}\n0::/\n")
    group = tmp_path / controllers / ("pod" if path.startswith("/pod") else "")
    group.mkdir(parents=True)
    (group / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (group / "cpu.cfs_period_us").write_text("100000\n")
    assert processors.usable(tmp_path, tmp_path / "own") == expected


@pytest.fixture
def group_of_one_processor() -> Iterator[Path]:
    """A real control group with a quota."""
    for root in _CPU_GROUPS:
        group = root / f"kakeya-test-{os.getpid()}"
        with suppress(OSError):
            group.mkdir()
            try:
                if not (group / "cgroup.procs").exists():
                    continue  # a plain directory
                if (group / "cpu.cfs_quota_us").exists():
                    (group / "cpu.cfs_quota_us").write_text("100000")
                else:
                    (group / "cpu.max").write_text("100000 100000")
                yield group
                return
            finally:
                group.rmdir()
    pytest.skip("no control group can be made here")


def test_a_real_quota(group_of_one_processor: Path) -> None:
    ask = "from kakeya_shared.process import processors; print(processors.usable())"
    enter = 'echo $$ > "$1/cgroup.procs" && exec "$2" -c "$3"'
    command = ["sh", "-c", enter, "sh", str(group_of_one_processor), sys.executable, ask]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "1\n"


def test_what_cannot_be_read_is_no_quota(tmp_path: Path) -> None:
    assert _usable(tmp_path, "3:cpu:/docker\n", root="100000 100000") == 4
    assert _usable(tmp_path, "0::/\n", root="unheard of things") == 4


def test_where_there_is_no_affinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert processors.usable(tmp_path, tmp_path) == 1


@pytest.mark.parametrize(("num_processes", "expected"), [(1, 4), (2, 2), (3, 1), (5, 1)])
def test_processes_of_one_host_share(monkeypatch: pytest.MonkeyPatch, num_processes: int, expected: int) -> None:
    monkeypatch.setattr(processors, "usable", lambda: 4)
    assert processors.share(num_processes) == expected
