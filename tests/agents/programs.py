"""Agents that are programs, each started as a person does, in a home and a project of its own."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.clients.environments import folder, program

_SECONDS = 300
"""What no turn takes, however busy the machine."""
_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS")
"""Of the environment of whoever runs the tests: no setting of theirs, and no key."""
QUIET: Final = {
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "AIDER_ANALYTICS_DISABLE": "true",
    "AIDER_CHECK_UPDATE": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}
"""They ask no server but the one that they are told of."""


@dataclass(frozen=True)
class Program:
    """One, with a folder that it works in.

    Attributes:
        command: what starts it.
        project: the folder.
        home: all that it keeps is in it.
        variables: that it is told.
    """

    command: Sequence[str]
    project: Path
    home: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str) -> str:
        """What it prints, once it has ended well; the test fails where it does not."""
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        done = subprocess.run(
            [*self.command, *arguments],
            cwd=self.project,
            env={**kept, "HOME": str(self.home), **QUIET, **self.variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        print(done.stdout[-4000:], done.stderr[-8000:])
        assert done.returncode == 0, (arguments, done.stdout[-4000:], done.stderr[-8000:])
        return done.stdout


def made(command: Sequence[str], directory: Path, variables: Mapping[str, str]) -> Program:
    """A program with a home and a project in a folder that is not there yet."""
    project, home = directory / "project", directory / "home"
    for each in (project, home):
        each.mkdir(parents=True)
    return Program(command, project, home, variables)


def of_npm(client: str, name: str) -> list[str]:
    """What starts a program of an npm package; the test fails where it is not installed."""
    return [str(folder(client, f"node_modules/.bin/{name}"))]


def of_pypi(client: str, name: str) -> list[str]:
    """Likewise of a package of PyPI."""
    return [program(client, name)]


def version(command: Sequence[str], directory: Path) -> str:
    """What it says itself of its version; the first word with a digit at its beginning, or behind a `v`."""
    said = made(command, directory, {}).run("--version").split()
    return next(word.lstrip("v").rstrip(",") for word in said if word.lstrip("v")[:1].isdigit())
