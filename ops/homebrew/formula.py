"""Writes Homebrew's formula of Kakeya from the lock: the same wheels, the same hashes.

    python -m ops.homebrew.formula ops/homebrew/kakeya.rb                                   # or: make formula
    python -m ops.homebrew.formula OUTPUT --source URL --sha256 DIGEST                      # of a released archive

Without a released archive the formula is one of the newest sources (`brew install --HEAD`), from the git repository
that HOMEBREW_KAKEYA_SOURCE names, by default a checkout in the home directory. `--check` only says whether it is up to
date.
"""

import argparse
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import parse_wheel_filename

from ops.homebrew.lock import MACOS, PARTS, PYTHON

LOCK = Path(__file__).with_name("pylock.toml")
FORMULA = Path(__file__).with_name("kakeya.rb")
_FORMULA = """\
# Made by `make formula` from ops/homebrew/pylock.toml; change these, not this.
class Kakeya < Formula
  desc "Runtime of language models with sessions on the server and bounded KV"
{release}  license "Apache-2.0"
{head}
  depends_on arch: :arm64
  depends_on :macos
  depends_on macos: :sonoma
  depends_on "python@{python}"

{resources}

  def install
    wheels = buildpath/"wheels"
    wheels.mkpath
    resources.each {{ |wheel| cp wheel.cached_download, wheels/File.basename(wheel.url) }}
    system formula_python, "-m", "venv", libexec
    pip = [libexec/"bin/python", "-m", "pip", "install", "--no-index", "--no-deps", "--no-compile"]
    system(*pip, *wheels.children)
    parts = %w[{parts}]
    parts.each {{ |part| system(*pip, "--no-build-isolation", buildpath/part) }}
    bin.install_symlink libexec/"bin/kakeya"
  end

  def formula_python
    Formula["python@{python}"].opt_bin/"python{python}"
  end

  test do
    assert_match(/^kakeya \\d/, shell_output("#{{bin}}/kakeya --version"))
    assert_match "kakeya-nano", shell_output("#{{bin}}/kakeya models list")
  end
end
"""
_HEAD = '  head ENV.fetch("HOMEBREW_KAKEYA_SOURCE", "file://#{Dir.home}/kakeya"), using: :git, branch: "main"\n'
_RELEASE = '  url "{url}"\n  sha256 "{sha256}"\n'
_RESOURCE = '  resource "{name}" do\n    url "{url}"\n    sha256 "{sha256}"\n  end'


@dataclass(frozen=True)
class Wheel:
    """One file of the lock."""

    name: str
    url: str
    sha256: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, nargs="?", default=FORMULA, help="the formula")
    parser.add_argument("--source", metavar="URL", help="of a released archive")
    parser.add_argument("--sha256", metavar="DIGEST", help="of that archive")
    parser.add_argument("--check", action="store_true", help="say whether the formula is up to date")
    flags = parser.parse_args(arguments)
    if (flags.source is None) != (flags.sha256 is None):
        parser.error("--source and --sha256 go together")
    made = formula(flags.source, flags.sha256)
    if not flags.check:
        flags.output.write_text(made)
    elif flags.output.read_text() != made:
        print(f"{flags.output.name} (make formula)")
        return 1
    return 0


def formula(source: str | None = None, sha256: str | None = None) -> str:
    """The formula, of a released archive or of the newest sources."""
    resources = [_RESOURCE.format(name=wheel.name, url=wheel.url, sha256=wheel.sha256) for wheel in wheels()]
    return _FORMULA.format(
        release=_RELEASE.format(url=source, sha256=sha256) if source else "",
        head="" if source else _HEAD,
        python=PYTHON,
        resources="\n\n".join(resources),
        parts=" ".join(PARTS),
    )


def wheels(lock: Path = LOCK) -> Iterator[Wheel]:
    """Of each package of the lock the one wheel that fits its platform best."""
    ranks = {tag: rank for rank, tag in enumerate(_tags())}
    for package in tomllib.loads(lock.read_text())["packages"]:
        best = min(package["wheels"], key=lambda wheel: _rank(wheel["url"], ranks))
        if _rank(best["url"], ranks) == len(ranks):
            raise ValueError(f"{package['name']}: no wheel of the lock is one for macOS {MACOS} and Python {PYTHON}")
        yield Wheel(package["name"], best["url"], best["hashes"]["sha256"])


def _tags() -> Iterator[Tag]:
    python = tuple(map(int, PYTHON.split(".")))
    major, minor = map(int, MACOS.split("."))
    platforms = [*mac_platforms((major, minor), "arm64")]
    yield from cpython_tags(python, platforms=platforms)
    yield from compatible_tags(python, interpreter=f"cp{PYTHON.replace('.', '')}", platforms=platforms)


def _rank(url: str, ranks: dict[Tag, int]) -> int:
    _, _, _, tags = parse_wheel_filename(url.rpartition("/")[2])
    return min((ranks[tag] for tag in tags if tag in ranks), default=len(ranks))


if __name__ == "__main__":
    sys.exit(main())
