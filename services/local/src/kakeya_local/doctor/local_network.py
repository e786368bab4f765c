"""macOS's Local Network privacy, named as what it is: "No route to host" to an address that answers a ping.

Since macOS 15 a process needs its user's leave to reach hosts of the same network. Daemons of launchd, root, and what a
person starts from Terminal or over SSH have it by themselves; agents of launchd have not (Apple's TN3179).
"""

import platform
import re
import subprocess

from kakeya_shared.settings.addresses import HostPort

SINCE_MACOS = 15
CURE = (
    "allow it in System Settings, Privacy & Security, Local Network, or install a daemon, which needs no leave: "
    "`sudo kakeya worker install-service --system`"
)
_PING = "/sbin/ping"
_PING_SECONDS = 5.0
_NO_ROUTE = re.compile("no route to host", re.IGNORECASE)


def keeps_away(address: str, details: str) -> bool:
    """Whether it is this that keeps us from an address, by what connecting to it said."""
    if not is_there() or not _NO_ROUTE.search(details):
        return False
    try:
        command = [_PING, "-c", "1", "-t", "2", HostPort.parse(address).host]
        done = subprocess.run(command, capture_output=True, timeout=_PING_SECONDS, check=False)  # noqa: S603
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def is_there() -> bool:
    """Whether this system has such a privacy."""
    major = platform.mac_ver()[0].partition(".")[0]
    return major.isdecimal() and int(major) >= SINCE_MACOS
