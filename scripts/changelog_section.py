"""Prints what CHANGELOG.md says of one version: the text of its release.

python scripts/changelog_section.py 0.2.0
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_HEADING = re.compile(r"(?m)^## +(\S+).*$")


class NoSection(Exception):
    """The changelog says nothing of a version."""


def section(text: str, version: str) -> str:
    """Without its heading. Raises NoSection."""
    headings = list(_HEADING.finditer(text))
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        if heading[1].strip("[]") == version:
            if found := text[heading.end() : following.start() if following else None].strip():
                return found
            raise NoSection(f"CHANGELOG.md has a heading for {version} and nothing below it")
    raise NoSection(f"CHANGELOG.md has no heading `## {version}`")


def main(argv: list[str]) -> int:
    """Returns the exit status."""
    if len(argv) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(section((ROOT / "CHANGELOG.md").read_text(), argv[0]))
    except NoSection as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
