"""Routers of two states of this repository, each installed with its needs into an environment of its own."""

import subprocess
import tarfile
from pathlib import Path

from tests.benchmarks.logged_command import CommandFailed
from tests.benchmarks.python_environment import ROOT, PythonEnvironment

_PARTS = ("proto/python", "shared", "services/router")
"""The router and what it needs of ours; what that needs has the versions of today's constraints.txt in both."""


def commit_of(name: str) -> str:
    """The full id of a commit. Raises CommandFailed: there is none of this name."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    found = subprocess.run(command, capture_output=True, text=True)
    if found.returncode:
        raise CommandFailed(f"{name!r} is no commit of this repository")
    return found.stdout.strip()


def install_commit(commit: str, directory: Path) -> Path:
    """Installs the router of a commit below a directory; returns its Python. Raises CommandFailed."""
    tree = directory / "tree"
    archive = directory / "tree.tar"
    directory.mkdir()
    subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", f"--output={archive}", commit, *_PARTS], check=True
    )
    with tarfile.open(archive) as parts:
        parts.extractall(tree, filter="data")
    return _install(tree, directory)


def install_working_tree(directory: Path) -> Path:
    """As `install_commit`, with what is not committed yet."""
    directory.mkdir()
    return _install(ROOT, directory)


def _install(tree: Path, directory: Path) -> Path:
    requirements = directory / "requirements.txt"
    requirements.write_text("".join(f"{tree / part}\n" for part in _PARTS))
    environment = PythonEnvironment(directory / "environment", requirements)
    environment.prepare()
    return environment.python
