"""What came of the loops, as a table of docs/http-sessions.md.

python -m tests.loops.results FILE      writes what `make test-loops` left in the file into the page
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.loops.families import FAMILIES
from tests.loops.judging import Outcome

PAGE = Path(__file__).resolve().parents[2] / "docs" / "http-sessions.md"
_TABLE = re.compile(r"(?P<start><!-- loops: made by make test-loops -->\n).*?(?P<end><!-- end of loops -->)", re.DOTALL)
_NAMES = [family.name for family in FAMILIES]


@dataclass(frozen=True)
class Result:
    """Of a client's conversations of one kind under one template.

    Attributes:
        client: with its version.
        kind: of conversation, for people.
    """

    client: str
    kind: str
    family: str
    num_turns: int
    num_continued: int
    reasons: dict[str, int]


@dataclass
class Results:
    """All of them."""

    found: list[Result] = field(default_factory=list)

    def add(self, client: str, kind: str, family: str, outcome: Outcome) -> None:
        self.found.append(Result(client, kind, family, outcome.num_turns, outcome.num_continued, outcome.reasons))

    def save(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps([asdict(each) for each in self.found], indent=1) + "\n")


def table(found: Sequence[Result]) -> Iterator[str]:
    """Lines of Markdown: a row for each client and kind of conversation, a column for each template."""
    yield " | ".join(["| client", "conversation", *_NAMES, "where not |"])
    yield "| --- | --- |" + " --- |" * (len(_NAMES) + 1)
    rows = dict.fromkeys((each.kind, each.client) for each in found)
    for kind, client in sorted(rows, key=lambda row: [*dict.fromkeys(kind for kind, _ in rows)].index(row[0])):
        of_row = [each for each in found if (each.kind, each.client) == (kind, client)]
        cells = [_cell([each for each in of_row if each.family == name]) for name in _NAMES]
        reasons: Counter[str] = Counter()
        for each in of_row:
            reasons.update(each.reasons)
        said = ", ".join(f"{number} x {reason}" for reason, number in sorted(reasons.items()))
        yield " | ".join([f"| {client}", kind, *cells, f"{said} |"])


def _cell(found: Sequence[Result]) -> str:
    if not found:
        return ""
    return f"{sum(each.num_continued for each in found)} of {sum(each.num_turns for each in found)}"


def written(page: str, found: Sequence[Result]) -> str:
    """A page with the table. Raises ValueError where it has no place for it."""
    lines = "".join(f"{line}\n" for line in table(found))
    changed, number = _TABLE.subn(lambda match: f"{match['start']}{lines}{match['end']}", page)
    if number != 1:
        raise ValueError(f"{number} places for the table")
    return changed


if __name__ == "__main__":
    given = [Result(**each) for each in json.loads(Path(sys.argv[1]).read_text())]
    PAGE.write_text(written(PAGE.read_text(), given))
