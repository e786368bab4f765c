"""What a release uploads to a package index, tried as strangers use it, without this repository.

    make test-wheels                              # or: python scripts/test_wheels.py build/dist

A whole stack from `pip install kakeya-local` in an empty environment, and from `uvx --from kakeya-local kakeya up`. It
answers over HTTP and over the SDK, `kakeya doctor` finds nothing wrong, and the kernel is that of the wheel. Each sdist
becomes a wheel, the worker's with a kernel where a compiler is. The wheel of the other processor holds a kernel for it
that asks for no newer glibc. Indices are asked once, for what others publish; uv is got with it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

import build_release
import set_version

ROOT = set_version.ROOT
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
KERNEL = "kakeya_worker/torch_backend/exact/kernel/_kernel.so"
VARIANTS = "from kakeya_worker.torch_backend.exact.kernel.library import variants; print(*variants())"
# Of ELF's header: e_machine, two bytes from this one on, little-endian.
_MACHINE_AT = 18
_MACHINES = {"x86_64": 62, "aarch64": 183}


class WheelFailed(Exception):
    """Something is not as it should be; the message says what."""


def kernel_faults(wheel: Path, machine: str) -> list[str]:
    """What is wrong with the kernel in a wheel for a processor."""
    names = ZipFile(wheel).namelist()
    if KERNEL not in names:
        return ["it has no kernel"]
    kernel = ZipFile(wheel).read(KERNEL)
    found = int.from_bytes(kernel[_MACHINE_AT : _MACHINE_AT + 2], "little")
    versions = [tuple(map(int, each.split(b"."))) for each in re.findall(rb"GLIBC_(\d+\.\d+)", kernel)]
    newest, most = max(versions, default=(0,)), tuple(map(int, build_release.GLIBC.split(".")))
    faults = [] if found == _MACHINES[machine] else [f"its kernel is for the processor {found}"]
    return faults + ([f"its kernel asks for glibc {newest}"] if newest > most else [])


def environment(directory: Path, wheels: Path, *requirements: str) -> Path:
    """An environment that was empty, with these from the wheels alone; its python."""
    _run(sys.executable, "-m", "venv", "--without-pip", str(directory))
    python = directory / "bin" / "python"
    _run(*PIP, "--python", str(python), "install", "--no-index", "--find-links", str(wheels), *requirements)
    return python


def gather(dist: Path, wheels: Path) -> None:
    """Ours of this machine as they were built, and all that they require."""
    constraints = ("-c", str(ROOT / "constraints.txt"))
    _run(*PIP, "wheel", "-w", str(wheels), *constraints, "--find-links", str(dist), "kakeya-local", "uv")


def stack(python: Path, directory: Path, *command: str) -> None:
    """A whole stack, started by a command, or by the `kakeya` beside this python."""
    directory.mkdir()
    program = shutil.copy(ROOT / "scripts" / "installed_stack.py", directory)
    _run(str(python), str(program), *command, cwd=directory)


def sdists(dist: Path, directory: Path) -> None:
    """Raises WheelFailed: the worker's became a wheel without a kernel."""
    for sdist in sorted(dist.glob("*.tar.gz")):
        _run(*PIP, "wheel", "-w", str(directory), "--no-deps", "--no-build-isolation", str(sdist))
    (worker,) = directory.glob("kakeya_worker-*.whl")
    if KERNEL not in ZipFile(worker).namelist():
        raise WheelFailed(f"{worker.name}, made of the sdist, has no kernel")
    print(f"{len(list(directory.iterdir()))} sdists became wheels, the worker's {worker.name}")


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dist", type=Path, help="where `make wheels` has put them")
    dist = parser.parse_args(argv).dist.resolve()
    for machine in build_release.TARGETS:
        (wheel,) = dist.glob(f"kakeya_worker-*{build_release.wheel_platform(machine)}.whl")
        if faults := kernel_faults(wheel, machine):
            raise WheelFailed(f"{wheel.name}: {'; '.join(faults)}")
        print(f"{wheel.name}: a kernel for {machine}, {wheel.stat().st_size:,} bytes")
    with tempfile.TemporaryDirectory(prefix="kakeya-wheels-") as name:
        directory = Path(name)
        gather(dist, directory / "wheels")
        python = environment(directory / "installed", directory / "wheels", "kakeya-local")
        stack(python, directory / "by-pip")
        print(f"its kernels: {_said(str(python), '-c', VARIANTS, cwd=directory)}")
        uv = environment(directory / "uv", directory / "wheels", "uv").parent / "uvx"
        offline = ("--no-index", "--find-links", str(directory / "wheels"), "--python", sys.executable)
        stack(python, directory / "by-uvx", str(uv), *offline, "--from", "kakeya-local", "kakeya")
        sdists(dist, directory / "made")
        _run(*PIP, "--python", str(python), "install", "--no-deps", "--force-reinstall", *_worker(directory / "made"))
        print(f"of the sdist, its kernels: {_said(str(python), '-c', VARIANTS, cwd=directory)}")
    return 0


def _worker(directory: Path) -> list[str]:
    return [str(each) for each in directory.glob("kakeya_worker-*.whl")]


def _said(*command: str, cwd: Path) -> str:
    return subprocess.run(
        command, check=True, cwd=cwd, env=_without_us(), capture_output=True, text=True
    ).stdout.strip()


def _run(*command: str, cwd: Path = ROOT) -> None:
    print("+", " ".join(command), flush=True)
    subprocess.run(command, check=True, cwd=cwd, env=_without_us())


def _without_us() -> dict[str, str]:
    """Variables that lead to no sources of this repository."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (WheelFailed, subprocess.CalledProcessError) as error:
        sys.exit(f"failed: {error}")
