"""How many processors this process may use: by affinity, and by the quota of its control group (containers)."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")


def usable(cgroups: Path = _CGROUPS, own_cgroup: Path = _OWN_CGROUP) -> int:
    """At least 1; a quota of one and a half processors counts as two."""
    has_affinity = hasattr(os, "sched_getaffinity")
    allowed = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(1, min([allowed, *map(math.ceil, _quotas(cgroups, own_cgroup))]))


def _quotas(cgroups: Path, own_cgroup: Path) -> Iterator[float]:
    """In processors: of the process's own control group and of those around it (version 2: cgroup-v2.rst, cpu.max)."""
    try:
        own = next(line for line in own_cgroup.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):  # no Linux, or control groups of version 1
        return
    group = cgroups / own.removeprefix("0::/")
    for directory in (group, *group.parents):
        if directory.is_relative_to(cgroups):
            yield from _quota(directory / "cpu.max")


def _quota(file: Path) -> Iterator[float]:
    """Of one group, if it has one."""
    try:
        quota, period = file.read_text().split()
    except (OSError, ValueError):  # the root group has no such file, nor has one of which only a part is mounted
        return
    if quota != "max":
        yield int(quota) / int(period)
