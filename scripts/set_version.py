"""Writes the version of all parts, which pyproject.toml names, into what each part says of itself and of the others.

    python scripts/set_version.py             # what pyproject.toml says; changes nothing where all agree
    python scripts/set_version.py --check     # names what differs, and changes nothing; 1 where something does
    python scripts/set_version.py 0.2.0       # this one from now on, in pyproject.toml too

Parts ask for each other's exact version: they are released together, tested together and installed together.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = Path("pyproject.toml")
"""Its `[tool.kakeya]` has the version."""
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_SOURCE_LINE = re.compile(r'(?m)^(\[tool\.kakeya\]\nversion = ")([^"]+)')
# What stands before a version, and the version.
_OF_PYTHON = (re.compile(r'(?m)^(version = ")([^"]+)'), re.compile(r'("kakeya[\w-]*(?:\[[^]]*\])?==)([^",;]+)'))
_OF_NPM = (re.compile(r'(?m)^(  "version": ")([^"]+)'),)
_OF_CHART = (re.compile(r"(?m)^((?:version|appVersion): )(\S+)"),)
_OF_LOCK = (*_OF_NPM, re.compile(r'("name": "@kakeya/sdk",\n      "version": ")([^"]+)'))
ELSEWHERE = {
    Path("sdks/typescript/package.json"): _OF_NPM,
    Path("sdks/typescript/package-lock.json"): _OF_LOCK,
    Path("ops/helm/kakeya/Chart.yaml"): _OF_CHART,
}


class VersionError(Exception):
    """No version can be read or written; the message says why."""


def version(root: Path = ROOT) -> str:
    """Of all parts. Raises VersionError."""
    found = tomllib.loads((root / SOURCE).read_text()).get("tool", {}).get("kakeya", {}).get("version", "")
    return _checked(found)


def parts(root: Path = ROOT) -> list[Path]:
    """The pyproject.toml of each distribution."""
    found = [*root.glob("*/pyproject.toml"), *root.glob("*/*/pyproject.toml")]
    return sorted(each.relative_to(root) for each in found if "build" not in each.parts)


def differing(root: Path = ROOT) -> Iterator[str]:
    """FILE:LINE: VERSION of what is not of the version of all, and files that name none."""
    wanted = version(root)
    for path, patterns in _places(root):
        text = (root / path).read_text()
        for pattern in patterns:
            found = list(pattern.finditer(text))
            if not found and pattern is patterns[0]:
                yield f"{path}: names no version"
            for each in found:
                if each[2] != wanted:
                    yield f"{path}:{text.count(chr(10), 0, each.start(2)) + 1}: {each[2]}, not {wanted}"


def write(wanted: str, root: Path = ROOT) -> list[Path]:
    """Returns the files that are changed. Raises VersionError."""
    _checked(wanted)
    changed = []
    for path, patterns in ((SOURCE, (_SOURCE_LINE,)), *_places(root)):
        text = new = (root / path).read_text()
        for pattern in patterns:
            new = pattern.sub(rf"\g<1>{wanted}", new)
        if new != text:
            (root / path).write_text(new)
            changed.append(path)
    return changed


def _places(root: Path) -> Iterator[tuple[Path, tuple[re.Pattern[str], ...]]]:
    for path in parts(root):
        yield path, _OF_PYTHON
    yield from ELSEWHERE.items()


def _checked(text: str) -> str:
    if not _VERSION.fullmatch(text):
        raise VersionError(f"{text!r} is no version of ours: three numbers, as in 1.2.3")
    return text


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("version", nargs="?", help="the new one")
    parser.add_argument("--check", action="store_true", help="change nothing")
    given = parser.parse_args(argv)
    try:
        if given.check:
            found = list(differing())
            print("\n".join(found) or version())
            return int(bool(found))
        for path in write(given.version or version()):
            print(path)
    except VersionError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
