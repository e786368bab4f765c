"""What starts services on a host, seen from the command that installs them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from kakeya_shared.installed_service.files import ServiceFile
from kakeya_shared.installed_service.host import Host
from kakeya_shared.installed_service.launchd import Launchd
from kakeya_shared.installed_service.service import Scope, Service, ServiceError, State
from kakeya_shared.installed_service.systemd import Systemd


class Manager(Protocol):
    """launchd or systemd, for the services of one scope. Every method raises ServiceError."""

    def files(self, service: Service) -> Sequence[ServiceFile]:
        """All that is written for a service; the first is what the manager reads."""
        ...

    def unit(self, name: str) -> Path:
        """The file that the manager reads."""
        ...

    def variables(self, name: str) -> Path:
        """The file of the service's variables."""
        ...

    def check(self) -> None:
        """Raises where this host has no such manager, or does not let this user."""
        ...

    def start(self, service: Service) -> list[str]:
        """Has the service started, now and at each boot; returns what there is to say beside."""
        ...

    def restart(self, name: str) -> None:
        """Ends its process and starts another one."""
        ...

    def stop(self, name: str) -> None:
        """Ends it for good; does nothing to one that does not run."""
        ...

    def forget(self, name: str) -> list[Path]:
        """After a stop: what is to be removed beside the two files."""
        ...

    def state(self, name: str) -> State:
        """How an installed service does."""
        ...

    def log(self, name: str) -> str:
        """The command that shows its log as it grows."""
        ...

    def last_line(self, name: str) -> str:
        """What it said last; "" where that is not known."""
        ...


def manager(host: Host, scope: Scope) -> Manager:
    """Of this host. Raises ServiceError."""
    if host.platform == "darwin":
        return Launchd(host, scope)
    if host.platform.startswith("linux"):
        return Systemd(host, scope)
    raise ServiceError(f"services are installed on macOS (launchd) and Linux (systemd), not on {host.platform}")
