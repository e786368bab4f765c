"""Writes Homebrew's formula of Kakeya from the lock: the same versions, the same hashes.

    python -m ops.homebrew.formula ops/homebrew/kakeya.rb                                   # or: make formula
    python -m ops.homebrew.formula OUTPUT --source URL --sha256 DIGEST                      # of a released archive

Without a released archive the formula is one of the newest sources (`brew install --HEAD`), from the git repository
that HOMEBREW_KAKEYA_SOURCE names, by default a checkout in the home directory. Wheels come from the index that pip has,
or from HOMEBREW_PIP_INDEX_URL. `--check` only says whether it is up to date.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ops.homebrew.lock import PARTS, PYTHON

LOCK = Path(__file__).with_name("requirements.lock")
FORMULA = Path(__file__).with_name("kakeya.rb")
_FORMULA = """\
# Made by `make formula` from ops/homebrew/requirements.lock; change these, not this.
class Kakeya < Formula
  desc "Runtime of language models with sessions on the server and bounded KV"
{release}  license "Apache-2.0"
{head}
  depends_on arch: :arm64
  depends_on :macos
  depends_on macos: :sonoma
  depends_on "python@{python}"

  LOCK = <<~REQUIREMENTS.freeze
{lock}
  REQUIREMENTS

  def install
    (buildpath/"requirements.lock").write LOCK
    ENV["PIP_INDEX_URL"] = ENV["HOMEBREW_PIP_INDEX_URL"] if ENV["HOMEBREW_PIP_INDEX_URL"]
    system formula_python, "-m", "venv", libexec
    pip = [libexec/"bin/python", "-m", "pip", "install", "--no-deps", "--no-compile"]
    system(*pip, "--require-hashes", "--only-binary", ":all:", "-r", buildpath/"requirements.lock")
    parts = %w[{parts}]
    parts.each {{ |part| system(*pip, "--no-index", "--no-build-isolation", buildpath/part) }}
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
    return _FORMULA.format(
        release=_RELEASE.format(url=source, sha256=sha256) if source else "",
        head="" if source else _HEAD,
        python=PYTHON,
        lock="\n".join(f"    {line}" for line in LOCK.read_text().splitlines()),
        parts=" ".join(PARTS),
    )


if __name__ == "__main__":
    sys.exit(main())
