"""Routers and workers of another commit, beside those of this tree: its sources come first on their path.

What they need of others is what is installed here. Their own entry points are as their commit declares them, by a file
of metadata beside the sources; the kernel is not built, so that their workers run float modes.
"""

import io
import os
import subprocess
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PARTS = ("proto/python", "shared", "services/router", "services/worker")


class NoCommit(Exception):
    """This clone does not have it."""


@dataclass(frozen=True)
class OlderVersion:
    """Sources of a commit below a directory. Make one by `extracted`."""

    directory: Path

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that is to run them."""
        return {"PYTHONPATH": os.pathsep.join(str(self.directory / part / "src") for part in _PARTS)}


def extracted(commit: str, directory: Path) -> OlderVersion:
    """Raises NoCommit."""
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", commit, *_PARTS]
    archive = subprocess.run(command, capture_output=True)
    if archive.returncode:
        raise NoCommit(archive.stderr.decode())
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as parts:
        parts.extractall(directory, filter="data")
    for part in _PARTS:
        _write_metadata(directory / part)
    return OlderVersion(directory)


def _write_metadata(part: Path) -> None:
    """As an installer does; of a distribution that is found twice the first counts."""
    project = tomllib.loads((part / "pyproject.toml").read_text())["project"]
    folder = part / "src" / f"{project['name'].replace('-', '_')}-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
    groups = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")
