"""Whether a disk takes more."""

import os
from pathlib import Path

# With less, what is about to be written may not fit, and who was let in would be refused again at once.
_ENOUGH_BYTES = 16 << 20
_ENOUGH_OF_SMALL_DISK = 0.05


def shortage(directory: Path) -> str:
    """Why nothing can be relied on to fit where a directory is, or is to be made; "" where there is room, or where that
    cannot be looked at.
    """
    try:
        place = next(each for each in (directory, *directory.parents) if each.exists())
        disk = os.statvfs(place)
    except OSError:
        return ""
    free = disk.f_frsize * (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail)  # some of it may be root's alone
    enough = min(_ENOUGH_BYTES, round(disk.f_frsize * disk.f_blocks * _ENOUGH_OF_SMALL_DISK))
    if free < enough:
        return f"the disk of {directory} is full: {_mib(free)} are free, {_mib(enough - free)} more are needed"
    if disk.f_files and not disk.f_ffree:
        return f"the disk of {directory} is full: it takes no further file"
    return ""


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.1f} MiB"
