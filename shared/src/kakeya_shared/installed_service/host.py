"""The host on which a service is installed, and who asks for it."""

import getpass
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kakeya_shared.installed_service.service import Scope, ServiceError

_COMMAND_SECONDS = 90.0
"""systemd gives up on a stop after that long; ours are shorter."""


@dataclass(frozen=True)
class Host:
    """What decides about places and rights.

    Attributes:
        platform: as `sys.platform` has it.
        root: below which the system's files are.
        home: of the user who asks.
        sudo_user: who became root to ask; "" where nobody did.
        environment: of the process that asks.
    """

    platform: str
    root: Path
    home: Path
    uid: int
    user: str
    sudo_user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def here(cls) -> "Host":
        """The one of this process. Raises ServiceError."""
        try:
            home = Path.home()
        except RuntimeError as error:
            raise ServiceError("there is no home directory: set HOME") from error
        environment = dict(os.environ)
        if (runtime := Path(f"/run/user/{os.geteuid()}")).is_dir():  # where `su` has not set it
            environment.setdefault("XDG_RUNTIME_DIR", str(runtime))
        sudo_user = environment.get("SUDO_USER", "") if os.geteuid() == 0 else ""
        return cls(sys.platform, Path("/"), home, os.geteuid(), getpass.getuser(), sudo_user, environment)

    @property
    def config_home(self) -> Path:
        """Of the user, by the XDG base directory specification."""
        return Path(self.environment.get("XDG_CONFIG_HOME") or self.home / ".config")

    @property
    def directories(self) -> tuple[Path, Path]:
        """That are the host's and the user's own, and stay where they are empty."""
        return self.root, self.home

    def variables_directory(self, scope: Scope) -> Path:
        """Where files of variables are."""
        return (self.root / "etc" if scope is Scope.SYSTEM else self.config_home) / "kakeya"

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of the host; a status other than 0 is the caller's to judge. Raises ServiceError."""
        try:
            return subprocess.run(  # noqa: S603  # commands of ours
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_COMMAND_SECONDS,
                check=False,
                env=dict(self.environment),
            )
        except FileNotFoundError as error:
            raise ServiceError(f"this host has no {command[0]}") from error
        except subprocess.TimeoutExpired as error:
            raise ServiceError(f"`{' '.join(command)}` has not ended within {_COMMAND_SECONDS:g} s") from error

    def demand(self, *command: str) -> str:
        """Runs a command that must succeed, and returns what it printed. Raises ServiceError."""
        done = self.run(*command)
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split()) or f"exit status {done.returncode}"
            raise ServiceError(f"`{' '.join(command)}` failed: {said}")
        return done.stdout
