"""Writes the lock of what Kakeya needs on a Mac: every wheel with its address and SHA-256, in the form of PEP 751.

    python -m ops.homebrew.lock ops/homebrew/pylock.toml      # or: make mac-lock

The versions are those of constraints.txt; what that does not name is resolved by uv (`pip install uv`), for macOS 14 on
Apple silicon, from PyPI. Only whole wheels are taken: nothing is compiled on the Mac but Kakeya's own kernel.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PYTHON = "3.12"
"""Homebrew's python@3.12 runs the worker; every wheel of the lock is for it."""
MACOS = "14.0"
"""The oldest that MLX has wheels for."""
PLATFORM = "aarch64-apple-darwin"
PARTS = (
    "proto/python",
    "shared",
    "services/router",
    "sdks/python",
    "services/worker",
    "models/nano",
    "services/http_shim",
    "services/local",
)
"""In dependency order, as they are installed."""
EXTRAS = {"sdks/python": ("tokenizer", "otel", "top"), "services/worker": ("mlx", "snapshots")}
_BUILDS = ("hatchling",)
_OWN = "kakeya"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="the lock")
    output = parser.parse_args(arguments).output
    with tempfile.TemporaryDirectory() as directory:
        wanted, lock = Path(directory) / "requirements.in", Path(directory) / "pylock.toml"
        wanted.write_text("\n".join(sorted({*requirements(), *_BUILDS})) + "\n")
        command = ["uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--format", "pylock.toml"]
        command += ["--only-binary", ":all:", "--python-platform", PLATFORM, "--python-version", PYTHON]
        command += ["--default-index", "https://pypi.org/simple", "--constraints", str(ROOT / "constraints.txt")]
        try:
            environment = os.environ | {"MACOSX_DEPLOYMENT_TARGET": MACOS}
            subprocess.run([*command, "--output-file", str(lock), str(wanted)], check=True, env=environment)
        except FileNotFoundError:
            print("uv is missing: pip install uv", file=sys.stderr)
            return 1
        except subprocess.CalledProcessError as error:
            return error.returncode
        output.write_text(lock.read_text())
    return 0


def requirements() -> Iterator[str]:
    """What the parts require of others, with the extras that a Mac's worker wants."""
    for part in PARTS:
        project = tomllib.loads((ROOT / part / "pyproject.toml").read_text())["project"]
        extras = project.get("optional-dependencies", {})
        listed = [*project.get("dependencies", ()), *(each for name in EXTRAS.get(part, ()) for each in extras[name])]
        yield from (each for each in listed if not Requirement(each).name.startswith(_OWN))


if __name__ == "__main__":
    sys.exit(main())
