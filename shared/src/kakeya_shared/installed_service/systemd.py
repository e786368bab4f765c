"""Services by systemd: units of the host, or of a user who lingers; their logs are the journal's, which has a bound."""

import re
from pathlib import Path

from kakeya_shared.installed_service.files import ServiceFile
from kakeya_shared.installed_service.host import Host
from kakeya_shared.installed_service.service import Activity, Scope, Service, ServiceError, State
from kakeya_shared.installed_service.variables import document

_ACTIVITIES = {
    "active": Activity.RUNNING,
    "reloading": Activity.RUNNING,
    "activating": Activity.STARTING,
    "failed": Activity.FAILED,
}
_SHOWN = "ActiveState,MainPID,NRestarts,ExecMainCode,ExecMainStatus"
_KILLED = ("2", "3")  # CLD_KILLED, CLD_DUMPED: then the status is a signal

# Restart: 2 and 78 say that the same start would fail again (flags, configuration); everything else is tried again, for
# ever, since a router or a disk comes back. KillMode: `kakeya up` stops its processes itself, in their order.
_UNIT = """\
[Unit]
Description={description}
{order}StartLimitIntervalSec=0

[Service]
Type=exec
{user}EnvironmentFile={variables}
ExecStart={program}
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2 78
KillMode=mixed
TimeoutStopSec={stop_seconds}
LimitNOFILE=65536
NoNewPrivileges=yes
SyslogIdentifier={name}

[Install]
WantedBy={target}
"""


class Systemd:
    """Units below /etc/systemd/system, or below a user's ~/.config/systemd/user."""

    def __init__(self, host: Host, scope: Scope) -> None:
        self._host, self._is_system = host, scope is Scope.SYSTEM
        self._variables = host.variables_directory(scope)
        self._systemctl = ("systemctl",) if self._is_system else ("systemctl", "--user")

    def check(self) -> None:
        """Raises ServiceError where systemd does not run this host, or does not listen to this user."""
        if not (self._host.root / "run/systemd/system").is_dir():
            raise ServiceError("systemd does not run this host; --dry-run prints the files for one that it does")
        if self._is_system:
            return
        done = self._host.run(*self._systemctl, "show-environment")
        if done.returncode:
            said = " ".join(done.stderr.split())
            cure = "log in as this user, with ssh or at the console (su and sudo do not do), or use --system as root"
            raise ServiceError(f"systemd does not listen to {self._host.user} ({said}); {cure}")

    def unit(self, name: str) -> Path:
        """See Manager."""
        directory = self._host.root / "etc/systemd/system" if self._is_system else self._user_units
        return directory / f"{name}.service"

    def variables(self, name: str) -> Path:
        """See Manager."""
        return self._variables / f"{name}.env"

    def files(self, service: Service) -> list[ServiceFile]:
        """The unit, and the variables, which systemd reads before it becomes another user."""
        variables = self.variables(service.name)
        text = _UNIT.format(
            description=service.description.replace("%", "%%"),
            order="Wants=network-online.target\nAfter=network-online.target\n" if self._is_system else "",
            user=f"User={service.run_as}\n" if self._is_system else "",
            variables=str(variables).replace("%", "%%"),
            program=" ".join(_quoted(word) for word in (*service.program, service.command)),
            stop_seconds=service.stop_seconds,
            name=service.name,
            target="multi-user.target" if self._is_system else "default.target",
        )
        secret = document(service.name, service.variables)
        return [ServiceFile(self.unit(service.name), text), ServiceFile(variables, secret, is_private=True)]

    def start(self, service: Service) -> list[str]:
        """See Manager. Services of a user run from boot on where the user lingers."""
        said = [] if self._is_system else self._linger()
        self._host.demand(*self._systemctl, "daemon-reload")
        self._host.demand(*self._systemctl, "enable", "--quiet", f"{service.name}.service")
        self.restart(service.name)
        return said

    def restart(self, name: str) -> None:
        """See Manager."""
        self._host.demand(*self._systemctl, "restart", f"{name}.service")

    def stop(self, name: str) -> None:
        """See Manager."""
        self._host.demand(*self._systemctl, "disable", "--quiet", "--now", f"{name}.service")
        self._host.run(*self._systemctl, "reset-failed", f"{name}.service")  # fails where it had not failed

    def forget(self, name: str) -> list[Path]:
        """Has systemd look again once the unit is gone; a user's last service takes the lingering along."""
        self.unit(name).unlink(missing_ok=True)
        self._host.run(*self._systemctl, "daemon-reload")  # it is stopped already, and nothing hangs on this
        if self._is_system or not self._lingering.exists() or [*self._user_units.glob("kakeya-*.service")]:
            return []
        self._host.demand("loginctl", "disable-linger", self._host.user)
        return [self._lingering]

    def state(self, name: str) -> State:
        """See Manager."""
        shown = self._host.demand(*self._systemctl, "show", f"{name}.service", f"--property={_SHOWN}")
        facts = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
        activity = _ACTIVITIES.get(facts.get("ActiveState", ""), Activity.STOPPED)
        code, status = facts.get("ExecMainCode", "0"), facts.get("ExecMainStatus", "0")
        ended = "" if code == "0" else f"{'signal' if code in _KILLED else 'status'} {status}"
        return State(activity, int(facts.get("MainPID", 0)), int(facts.get("NRestarts", 0)) + 1, ended)

    def log(self, name: str) -> str:
        """See Manager."""
        return " ".join([*self._journalctl, name, "-f"])

    def last_line(self, name: str) -> str:
        """See Manager."""
        done = self._host.run(*self._journalctl, name, "-n", "1", "-o", "cat", "--no-pager", "-q")
        return done.stdout.strip()

    @property
    def _user_units(self) -> Path:
        return self._host.config_home / "systemd/user"

    @property
    def _journalctl(self) -> tuple[str, ...]:
        return ("journalctl", "-u") if self._is_system else ("journalctl", "--user", "-u")

    @property
    def _lingering(self) -> Path:
        """There where the user lingers because of our services."""
        return self._variables / "lingering"

    def _linger(self) -> list[str]:
        user = self._host.user
        shown = self._host.run("loginctl", "show-user", user, "--property=Linger")
        if re.search(r"^Linger=yes$", shown.stdout, re.MULTILINE):
            return []
        if self._host.run("loginctl", "enable-linger", user).returncode:
            return [f"it starts when {user} logs in; to have it start at boot: sudo loginctl enable-linger {user}"]
        self._variables.mkdir(parents=True, exist_ok=True)
        self._lingering.touch()
        return []


def _quoted(word: str) -> str:
    """A word of a command line as units write them. Raises ServiceError: systemd takes no such program."""
    if re.search(r"['\"\\\x00-\x1f]", word):
        raise ServiceError(f"systemd runs nothing whose path has quotes or backslashes: {word}")
    escaped = word.replace("%", "%%")
    return f'"{escaped}"' if " " in word else escaped
