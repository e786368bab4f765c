"""Whether a Linux host goes to sleep by itself, and what a service on it then waits for: `kakeya doctor` on Linux."""

import subprocess
from collections.abc import Iterator

from kakeya_local.doctor.findings import Condition, Finding

_COMMAND_SECONDS = 10.0
_SLEEPS = ("suspend", "hibernate", "hybrid-sleep", "suspend-then-hibernate", "sleep")
_FORBID = "sudo systemctl mask sleep.target suspend.target hibernate.target hybrid-sleep.target"
_MEANWHILE = "`systemd-inhibit --what=sleep:idle:handle-lid-switch COMMAND` keeps it awake while a command runs"
# logind's, by what makes a host sleep.
_CAUSES = {"IdleAction": "when nobody uses it", "HandleLidSwitchExternalPower": "when its lid is closed"}


def examine() -> Iterator[Finding]:
    """Nothing where systemd does not run this host, as in a container."""
    if (is_masked := _output("systemctl", "is-enabled", "sleep.target").strip() == "masked") or (facts := _logind()):
        yield _finding({} if is_masked else facts, is_masked=is_masked)


def _finding(facts: dict[str, str], *, is_masked: bool) -> Finding:
    if is_masked:
        return Finding("linux", "sleep", Condition.OK, "never: sleep.target is masked")
    causes = [f"{cause} ({name}={facts[name]})" for name, cause in _CAUSES.items() if facts.get(name) in _SLEEPS]
    if causes:
        found = f"{' and '.join(causes)}; the sessions of its worker then wait or go elsewhere"
        return Finding("linux", "sleep", Condition.ABSENT, found, f"{_FORBID}; {_MEANWHILE}")
    return Finding("linux", "sleep", Condition.OK, f"not by logind; a desktop may do so, which this forbids: {_FORBID}")


def _logind() -> dict[str, str]:
    shown = _output("loginctl", "show-user", *(f"--property={name}" for name in _CAUSES))
    return dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)


def _output(*command: str) -> str:
    """What a command prints; nothing where it is missing or hangs. A status other than 0 says something here."""
    try:
        done = subprocess.run(  # noqa: S603  # commands of ours
            command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
