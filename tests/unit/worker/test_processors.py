"""Threads by affinity and quota."""

import os
from pathlib import Path

import pytest

from kakeya_worker import processors


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


def test_what_cannot_be_read_is_no_quota(tmp_path: Path) -> None:
    assert _usable(tmp_path, "3:cpu:/docker\n", root="100000 100000") == 4
    assert _usable(tmp_path, "0::/\n", root="unheard of things") == 4


def test_where_there_is_no_affinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert processors.usable(tmp_path, tmp_path) == 1
