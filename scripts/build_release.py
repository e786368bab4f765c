"""Builds what a release uploads to a package index: wheels and sdists of all parts.

    python scripts/build_release.py build/dist                       # or: make wheels
    python scripts/build_release.py build/dist --targets x86_64      # the kernel's wheel for this processor alone

The worker has a wheel for each target, with the kernel compiled by zig against glibc 2.28 whatever this machine has.
It has one without a kernel for everything else, such as macOS. All other parts are pure Python.
It is built by the tools that `make install` has brought: no index is asked.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import set_version

ROOT = set_version.ROOT
WORKER = Path("services/worker")
TARGETS = ("x86_64", "aarch64")
GLIBC = "2.28"
"""As old as that of torch's wheels."""
PLATFORM_VARIABLE = "KAKEYA_WHEEL_PLATFORM"


def wheel_platform(machine: str) -> str:
    """As it stands in a wheel's name."""
    return f"manylinux_{GLIBC.replace('.', '_')}_{machine}"


def variables(machine: str) -> dict[str, str]:
    """What the worker's build hook is told for a processor architecture; "": for all, without a kernel."""
    if not machine:
        return {PLATFORM_VARIABLE: "any"}
    compiler = f"{sys.executable} -m ziglang c++ -target {machine}-linux-gnu.{GLIBC}"
    return {PLATFORM_VARIABLE: wheel_platform(machine), "CXX": compiler}


def build(output: Path, targets: Iterable[str]) -> list[Path]:
    """All wheels and sdists, by name. Raises subprocess.CalledProcessError."""
    output.mkdir(parents=True, exist_ok=True)
    for part in (each.parent for each in set_version.parts()):
        if part != WORKER:
            _hatchling(part, output, "sdist", "wheel")
    _hatchling(WORKER, output, "sdist")
    for machine in (*targets, ""):
        _hatchling(WORKER, output, "wheel", environment=variables(machine))
    return sorted(each for each in output.iterdir() if each.name.endswith((".whl", ".tar.gz")))


def _hatchling(part: Path, output: Path, *kinds: str, environment: dict[str, str] | None = None) -> None:
    for kind in kinds:
        command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(output.resolve())]
        subprocess.run(command, check=True, cwd=ROOT / part, env=os.environ | (environment or {}))


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("output", type=Path, help="the directory of the files")
    parser.add_argument("--targets", nargs="*", default=TARGETS, choices=TARGETS, help="processors of kernels (all)")
    given = parser.parse_args(argv)
    if different := list(set_version.differing()):
        print("\n".join(different), file=sys.stderr)
        return 1
    try:
        for path in build(given.output, given.targets):
            print(f"{path.stat().st_size:>12,} {path.name}")
    except subprocess.CalledProcessError as error:
        return error.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
