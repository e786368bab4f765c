"""Services by launchd: daemons of the Mac, or agents of a user who is logged in."""

import plistlib
import re
import time
from pathlib import Path
from typing import Any

from kakeya_shared.installed_service.files import ServiceFile, make_directory
from kakeya_shared.installed_service.host import Host
from kakeya_shared.installed_service.service import Activity, Scope, Service, ServiceError, State
from kakeya_shared.installed_service.variables import document

_FACT = re.compile(r"^\t(state|pid|runs|last exit code) = (.*)$", re.MULTILINE)
_GONE_SECONDS = 120.0
_LOOK_SECONDS = 0.2
_NUM_FILES = 8192  # a connection takes one; launchd's own bound is 256
_NEVER = "(never exited)"


class Launchd:
    """Plists in /Library/LaunchDaemons, or in a user's ~/Library/LaunchAgents."""

    def __init__(self, host: Host, scope: Scope) -> None:
        self._host, self._is_system = host, scope is Scope.SYSTEM
        self._library = (host.root if self._is_system else host.home) / "Library"
        self._variables = host.variables_directory(scope)
        self._domain = "system" if self._is_system else f"gui/{host.uid}"

    def check(self) -> None:
        """Raises ServiceError where there is no such domain: agents need a user who is logged in at the screen."""
        if self._host.run("launchctl", "print", self._domain).returncode:
            cure = "`sudo kakeya ... install-service --system` installs one that starts at boot without that"
            raise ServiceError(f"{self._host.user} is not logged in at this Mac's screen, and has no agents; {cure}")

    def unit(self, name: str) -> Path:
        """See Manager."""
        return self._library / ("LaunchDaemons" if self._is_system else "LaunchAgents") / f"{name}.plist"

    def variables(self, name: str) -> Path:
        """See Manager."""
        return self._variables / f"{name}.env"

    def files(self, service: Service) -> list[ServiceFile]:
        """The plist, and the variables, which the service itself reads: launchd knows no such files."""
        variables = self.variables(service.name)
        arguments = [*service.program, service.command, "run-service", str(variables), str(self._log(service.name))]
        job: dict[str, Any] = {
            "Label": service.name,
            "ProgramArguments": arguments,
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ExitTimeOut": service.stop_seconds,
            # Else it computes with throttled processors and disks, as what runs in the background does.
            "ProcessType": "Interactive",
            "SoftResourceLimits": {"NumberOfFiles": _NUM_FILES},
        }
        if self._is_system:
            job["UserName"] = service.run_as
        secret = document(service.name, service.variables)
        return [
            ServiceFile(self.unit(service.name), plistlib.dumps(job, sort_keys=False).decode()),
            ServiceFile(variables, secret, is_private=True, owner=service.run_as if self._is_system else ""),
        ]

    def start(self, service: Service) -> list[str]:
        """See Manager."""
        make_directory(self._log(service.name).parent, service.run_as if self._is_system else "")
        self._host.run("launchctl", "enable", f"{self._domain}/{service.name}")  # it may have been disabled before
        self.restart(service.name)
        return [] if self._is_system else [_OF_AGENTS.format(user=self._host.user)]

    def restart(self, name: str) -> None:
        """See Manager. Not `kickstart -k`, which gives a process no time to end."""
        self.stop(name)
        self._host.demand("launchctl", "bootstrap", self._domain, str(self.unit(name)))

    def stop(self, name: str) -> None:
        """See Manager. launchd goes on ending it after it has answered."""
        if self._print(name).returncode:
            return
        done = self._host.run("launchctl", "bootout", f"{self._domain}/{name}")
        ends_at = time.monotonic() + _GONE_SECONDS
        while not self._print(name).returncode:
            if time.monotonic() > ends_at:
                raise ServiceError(f"{name} does not end: {' '.join(done.stderr.split())}")
            time.sleep(_LOOK_SECONDS)

    def forget(self, name: str) -> list[Path]:
        """The logs."""
        return [self._log(name).parent]

    def state(self, name: str) -> State:
        """See Manager."""
        printed = self._print(name)
        if printed.returncode:
            return State(Activity.STOPPED)
        facts = dict(_FACT.findall(printed.stdout))
        exited = facts.get("last exit code", _NEVER)
        has_failed = exited not in (_NEVER, "0")
        pid = int(facts.get("pid", 0))
        idle = Activity.FAILED if has_failed else Activity.STOPPED
        return State(
            Activity.RUNNING if pid else idle, pid, int(facts.get("runs", 0)), f"status {exited}" if has_failed else ""
        )

    def log(self, name: str) -> str:
        """See Manager."""
        return f"tail -F '{self._log(name)}'"

    def last_line(self, name: str) -> str:
        """See Manager."""
        try:
            lines = self._log(name).read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""

    def _log(self, name: str) -> Path:
        return self._library / "Logs" / name / f"{name}.log"

    def _print(self, name: str) -> Any:
        return self._host.run("launchctl", "print", f"{self._domain}/{name}")


_OF_AGENTS = (
    "it runs while {user} is logged in at the screen, and macOS may keep it from the local network; "
    "--system installs one that starts at boot and is not kept from it"
)
