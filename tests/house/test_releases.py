"""What a release is made of: wheels by platform, and the changelog's section."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import build_release
import changelog_section
import pytest

from kakeya_worker.torch_backend.exact.kernel import build
from tests.house.packages import ROOT

CHANGELOG = """# Changelog

## Unreleased

## 1.10.0 - 2027-02-01

### Added
- More.

## 1.1.0

- Less.
"""


def worker_wheel(directory: Path, platform: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    environment = os.environ | {build_release.PLATFORM_VARIABLE: platform}
    return subprocess.run(
        command, cwd=ROOT / build_release.WORKER, env=environment, capture_output=True, text=True, timeout=120
    )


def test_a_wheel_for_everything_has_no_kernel(tmp_path: Path) -> None:
    done = worker_wheel(tmp_path, "any")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    names = ZipFile(wheel).namelist()
    assert "kakeya_worker/torch_backend/exact/kernel/build.py" in names
    assert [name for name in names if name.endswith(".so")] == []


@pytest.mark.parametrize("platform", ["manylinux2014_x86_64", "macosx_14_0_arm64"])
def test_a_platform_that_no_kernel_is_built_for_is_refused(platform: str, tmp_path: Path) -> None:
    done = worker_wheel(tmp_path, platform)
    assert done.returncode != 0
    assert f"$KAKEYA_WHEEL_PLATFORM is {platform!r}" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_of_another_processor_is_another_one() -> None:
    digests = {build.digest(machine=machine) for machine in build_release.TARGETS}
    assert len(digests) == len(build_release.TARGETS)
    assert build.digest() in digests


def test_a_target_is_named_to_the_hook_and_to_the_compiler() -> None:
    variables = build_release.variables("aarch64")
    assert variables["KAKEYA_WHEEL_PLATFORM"] == "manylinux_2_28_aarch64"
    assert variables["CXX"].endswith("-target aarch64-linux-gnu.2.28")
    assert build_release.variables("") == {"KAKEYA_WHEEL_PLATFORM": "any"}


@pytest.mark.parametrize(("version", "text"), [("1.10.0", "### Added\n- More."), ("1.1.0", "- Less.")])
def test_the_changelog_has_a_section_for_each_version(version: str, text: str) -> None:
    assert changelog_section.section(CHANGELOG, version) == text


@pytest.mark.parametrize("version", ["1.1", "1.10", "Unreleased", "2.0.0"])
def test_without_a_section_there_is_no_release(version: str) -> None:
    with pytest.raises(changelog_section.NoSection, match=version):
        changelog_section.section(CHANGELOG, version)
