"""Says within a second whether this machine can run the Mac's workflow, and how to mend what is missing.

    python -m ops.mac.prewarm --wheels DIRECTORY      # or: make mac-prewarm

It looks at Python, the compiler, free disk space and the wheels that are kept (`make mac-warm`); on a Mac at the
processor, too. Each line that is not well ends with a command. Exit status: 0 where all is well, else 1.
"""

from __future__ import annotations  # see ops/mac/wheels.py

import argparse
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ops.mac import wheels

MIN_PYTHON = (3, 11)
MIN_FREE_BYTES = 10 << 30
"""Of the environment, 3 GB, and checkpoints, snapshots and reports of the tests, several times over."""


@dataclass(frozen=True)
class Check:
    """What was looked at.

    Attributes:
        name: of it.
        found: what is there.
        mend: the command that mends it; none: it is well.
    """

    name: str
    found: str
    mend: str | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--wheels", type=Path, required=True, metavar="DIRECTORY", help="where `make mac-warm` keeps them"
    )
    flags = parser.parse_args(arguments)
    checks = list(look(flags.wheels))
    for check in checks:
        print(f"{'MISSING' if check.mend else 'ok':8}{check.name}: {check.found}")
    broken = [check for check in checks if check.mend]
    for check in broken:
        line = f"to mend {check.name}, run on {platform.node()}: {check.mend}"
        print(line, file=sys.stderr)
        if os.environ.get("GITHUB_ACTIONS"):  # so that the page of the run shows it, too
            print(f"::error title=pre-warm check::{line}")
    return 1 if broken else 0


def look(kept: Path) -> Iterator[Check]:
    """At everything; `kept` is the directory of wheels."""
    yield _python()
    yield _compiler()
    yield _disk()
    yield _wheels(kept)
    if sys.platform == "darwin":
        yield _processor()


def _python() -> Check:
    found = f"{platform.python_version()} ({sys.executable})"
    wanted = ".".join(map(str, MIN_PYTHON))
    fits = sys.version_info[:2] >= MIN_PYTHON
    return Check("Python", found, None if fits else f"brew install python@{wanted}, and put its python3 first in PATH")


def _compiler() -> Check:
    if sys.platform == "darwin":  # a stub of c++ is there without the tools, and opens a window
        done = subprocess.run(["xcode-select", "-p"], capture_output=True, text=True)
        return Check("compiler", done.stdout.strip() or "none", "xcode-select --install" if done.returncode else None)
    found = shutil.which("c++")
    return Check("compiler", found or "none", None if found else "apt-get install g++")


def _disk() -> Check:
    free = shutil.disk_usage(wheels.ROOT).free
    found = f"{free >> 30} GiB free of {MIN_FREE_BYTES >> 30} that are needed"
    mend = f"du -xh -d 3 {shlex.quote(str(Path.home()))} | sort -h | tail -n 30, and remove what is not needed"
    return Check("disk", found, mend if free < MIN_FREE_BYTES else None)


def _wheels(kept: Path) -> Check:
    if wheels.are_current(kept):
        return Check("wheels", f"{kept}, those of this checkout")
    found = "of other requirements" if (kept / wheels.STAMP).is_file() else "none"
    return Check("wheels", f"{kept}: {found}", f"make -C {shlex.quote(str(wheels.ROOT))} mac-warm")


def _processor() -> Check:
    machine = platform.machine()
    mend = None if machine == "arm64" else "file $(which python3), and install a native one: Rosetta runs no MLX"
    return Check("processor", machine, mend)


if __name__ == "__main__":
    sys.exit(main())
