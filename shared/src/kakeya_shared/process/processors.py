"""How many processors this process may use: by affinity, and by the quota of its control group (containers)."""

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")


def usable(cgroups: Path = _CGROUPS, own_cgroup: Path = _OWN_CGROUP) -> int:
    """At least 1; a quota of one and a half processors counts as two."""
    has_affinity = hasattr(os, "sched_getaffinity")
    allowed = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(1, min([allowed, *map(math.ceil, _quotas(cgroups, own_cgroup))]))


def share(num_processes: int) -> int:
    """Of each of so many processes that compute on this host at once; at least 1."""
    return max(1, usable() // num_processes)


def _quotas(cgroups: Path, own_cgroup: Path) -> Iterator[float]:
    """In processors: of the process's own control groups and of those around them.

    Version 2 has one tree (cgroup-v2.rst, cpu.max), version 1 one for each set of controllers (sched-bwc.rst).
    """
    try:
        lines = own_cgroup.read_text().splitlines()
    except OSError:  # no Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _around(cgroups, path, _quota)
        elif "cpu" in controllers.split(","):
            yield from _around(cgroups / controllers, path, _quota_of_version_1)


def _around(root: Path, path: str, quota: Callable[[Path], Iterator[float]]) -> Iterator[float]:
    group = root / path.removeprefix("/")
    for directory in (group, *group.parents):
        if directory.is_relative_to(root):
            yield from quota(directory)


def _quota(group: Path) -> Iterator[float]:
    """Of one group, if it has one."""
    try:
        quota, period = (group / "cpu.max").read_text().split()
    except (OSError, ValueError):  # the root group has no such file, nor has one of which only a part is mounted
        return
    if quota != "max":
        yield int(quota) / int(period)


def _quota_of_version_1(group: Path) -> Iterator[float]:
    try:
        quota, period = (int((group / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
    except (OSError, ValueError):
        return
    if quota > 0:
        yield quota / period
