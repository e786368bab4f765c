"""Writes the lock of what Kakeya needs on a Mac: each package's version and its wheel's SHA-256, as pip takes them.

    python -m ops.homebrew.lock ops/homebrew/requirements.lock      # or: make mac-lock

The versions are those of constraints.txt; what that does not name is resolved by uv (`pip install uv`), for macOS 14 on
Apple silicon, from the index that uv is told. Only whole wheels are taken: nothing is compiled on the Mac but Kakeya's
own kernel. Where a wheel lies is not kept: any index has the same by its digest.
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
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import parse_wheel_filename

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
        command += ["--constraints", str(ROOT / "constraints.txt")]
        try:
            environment = os.environ | {"MACOSX_DEPLOYMENT_TARGET": MACOS}
            subprocess.run([*command, "--output-file", str(lock), str(wanted)], check=True, env=environment)
        except FileNotFoundError:
            print("uv is missing: pip install uv", file=sys.stderr)
            return 1
        except subprocess.CalledProcessError as error:
            return error.returncode
        output.write_text("".join(f"{line}\n" for line in pinned(lock)))
    return 0


def pinned(lock: Path) -> Iterator[str]:
    """A line for each package of uv's lock (PEP 751), with the digest of the wheel that fits the Mac best.

    Raises:
        ValueError: a package has none.
    """
    ranks = {tag: rank for rank, tag in enumerate(_tags())}
    for package in tomllib.loads(lock.read_text()).get("packages", ()):
        best = min(package["wheels"], key=lambda wheel: _rank(wheel["url"], ranks))
        if _rank(best["url"], ranks) == len(ranks):
            raise ValueError(f"{package['name']}: no wheel of the lock is one for macOS {MACOS} and Python {PYTHON}")
        yield f"{package['name']}=={package['version']} --hash=sha256:{best['hashes']['sha256']}"


def _tags() -> Iterator[Tag]:
    python = tuple(map(int, PYTHON.split(".")))
    major, minor = map(int, MACOS.split("."))
    platforms = [*mac_platforms((major, minor), "arm64")]
    yield from cpython_tags(python, platforms=platforms)
    yield from compatible_tags(python, interpreter=f"cp{PYTHON.replace('.', '')}", platforms=platforms)


def _rank(url: str, ranks: dict[Tag, int]) -> int:
    _, _, _, tags = parse_wheel_filename(url.rpartition("/")[2])
    return min((ranks[tag] for tag in tags if tag in ranks), default=len(ranks))


def requirements() -> Iterator[str]:
    """What the parts require of others, with the extras that a Mac's worker wants."""
    for part in PARTS:
        project = tomllib.loads((ROOT / part / "pyproject.toml").read_text())["project"]
        extras = project.get("optional-dependencies", {})
        listed = [*project.get("dependencies", ()), *(each for name in EXTRAS.get(part, ()) for each in extras[name])]
        yield from (each for each in listed if not Requirement(each).name.startswith(_OWN))


if __name__ == "__main__":
    sys.exit(main())
