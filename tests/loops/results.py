"""What came of the loops, as a table of docs/http-sessions.md.

python -m tests.loops.results FILE      writes what `make test-loops` left in the file into the page
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.loops.families import FAMILIES
from tests.loops.judging import Outcome

PAGE = Path(__file__).resolve().parents[2] / "docs" / "http-sessions.md"
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
        yield " | ".join([f"| {client}", kind, *cells, f"{reasons_of(each.reasons for each in of_row)} |"])


def _cell(found: Sequence[Result]) -> str:
    if not found:
        return ""
    return f"{sum(each.num_continued for each in found)} of {sum(each.num_turns for each in found)}"


def reasons_of(found: Iterable[Mapping[str, int]]) -> str:
    """Why turns did not go on, each with the number of those that did not because of it."""
    reasons: Counter[str] = Counter()
    for each in found:
        reasons.update(each)
    return ", ".join(f"{number} x {reason}" for reason, number in sorted(reasons.items()))


def written(page: str, found: Sequence[Result]) -> str:
    """A page with the table. Raises ValueError where it has no place for it."""
    return with_table(page, "loops", table(found))


def with_table(page: str, name: str, lines: Iterable[str]) -> str:
    """A page with a table in the place that comments name. Raises ValueError where that is not there once."""
    place = re.compile(rf"(?P<start><!-- {name}: made by [^\n]*-->\n).*?(?P<end><!-- end of {name} -->)", re.DOTALL)
    made = "".join(f"{line}\n" for line in lines)
    changed, number = place.subn(lambda match: f"{match['start']}{made}{match['end']}", page)
    if number != 1:
        raise ValueError(f"{number} places for the table")
    return changed


if __name__ == "__main__":
    given = [Result(**each) for each in json.loads(Path(sys.argv[1]).read_text())]
    PAGE.write_text(written(PAGE.read_text(), given))
