"""Keeps on a machine all wheels that `make install` needs, so that a test run asks no index.

    python -m ops.mac.wheels DIRECTORY -- REQUIREMENT...      # or: make mac-warm

They are built and fetched into a new directory, which then takes the old one's place. A stamp says for which
requirements, which Python and which machine they are.
"""

from __future__ import annotations  # it must be read by the Python that macOS comes with, to say that it is too old

import argparse
import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STAMP = "stamp"
_OURS = "kakeya*.whl"
"""Are installed from the checkout: a wheel of an older one must not stand in for them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="where they are kept")
    parser.add_argument("requirements", nargs="+", metavar="REQUIREMENT", help="options of `pip wheel`, behind --")
    flags = parser.parse_args(arguments)
    status = fetch(flags.directory, flags.requirements)
    if status == 0:
        number = len(list(flags.directory.glob("*.whl")))
        print(f"{number} wheels in {flags.directory}")
    return status


def fetch(directory: Path, requirements: Sequence[str]) -> int:
    """Gets them; pip's exit status. Where it is not 0, what was in the directory is there still."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix="wheels-") as made:
        new = Path(made) / "new"
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
        status = subprocess.run([*command, "--wheel-dir", str(new), *requirements], cwd=ROOT).returncode
        if status:
            return status
        for wheel in new.glob(_OURS):
            wheel.unlink()
        (new / STAMP).write_text(wanted_stamp())
        shutil.rmtree(directory, ignore_errors=True)
        new.rename(directory)
    return 0


def are_current(directory: Path) -> bool:
    """Whether they are those that this checkout needs."""
    stamp = directory / STAMP
    return stamp.is_file() and stamp.read_text() == wanted_stamp()


def wanted_stamp(root: Path = ROOT) -> str:
    """Changes with whatever says what is to be installed, with Python's minor version and with the machine."""
    files = [root / "constraints.txt", root / "requirements-dev.txt"]
    files += sorted(each for pattern in ("*/pyproject.toml", "*/*/pyproject.toml") for each in root.glob(pattern))
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    version = ".".join(platform.python_version_tuple()[:2])
    return f"{digest.hexdigest()} python{version} {platform.system()}-{platform.machine()}\n"


if __name__ == "__main__":
    sys.exit(main())
