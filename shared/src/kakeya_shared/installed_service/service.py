"""What is installed: one command with its variables."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class ServiceError(Exception):
    """It cannot be installed, asked or removed; the message is one line that says why and, where possible, the cure."""


class Scope(StrEnum):
    """Whose service it is: of the user who installs it, or of the host, for which that takes an administrator."""

    USER = "user"
    SYSTEM = "system"


@dataclass(frozen=True)
class Service:
    """One command as a service.

    Attributes:
        name: of its files, and by which the host knows it, such as "kakeya-worker".
        program: the words that start `kakeya`; the first is an absolute path.
        command: what `kakeya` is told to run, such as "worker".
        variables: the environment that it gets; it takes no flags.
        run_as: the user whose process it is; "" for the user's own services.
        stop_seconds: how long it may take to end before it is killed.
    """

    name: str
    program: tuple[str, ...]
    command: str
    variables: Mapping[str, str]
    scope: Scope
    run_as: str
    stop_seconds: int

    @property
    def description(self) -> str:
        """A line for lists of services."""
        return f"Kakeya: {self.name.removeprefix('kakeya-')}"


class Activity(StrEnum):
    """How a service does."""

    RUNNING = "running"
    STARTING = "starting"
    STOPPED = "stopped"
    FAILED = "failed"
    NOT_INSTALLED = "not installed"


@dataclass(frozen=True)
class State:
    """What the host says of a service.

    Attributes:
        pid: of its process; 0: there is none.
        num_starts: since it was installed or the host started; 0: not known.
        exit_status: with which its last process ended, in the host's words; "" while none has.
    """

    activity: Activity
    pid: int = 0
    num_starts: int = 0
    exit_status: str = ""

    def __str__(self) -> str:
        said = [self.activity.value]
        said += [f"pid {self.pid}"] * bool(self.pid)
        said += [f"started {self.num_starts} times"] * (self.num_starts > 1)
        said += [f"ended last with {self.exit_status}"] * bool(self.exit_status)
        return ", ".join(said)
