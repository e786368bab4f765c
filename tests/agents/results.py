"""What came of the clients, as a table of docs/clients.md.

python -m tests.agents.results FILE      writes what `make test-agents` left in the file into the page
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.loops.judging import Outcome
from tests.loops.recorder import Exchange
from tests.loops.results import reasons_of, with_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"


@dataclass(frozen=True)
class Result:
    """Of a client's conversation.

    Attributes:
        client: with its version.
        api: the route that it asks.
        num_letters: of the instructions and tools that it sends.
        num_tools: that it offers.
    """

    client: str
    api: str
    num_tools: int
    num_letters: int
    num_turns: int
    num_continued: int
    reasons: dict[str, int]


@dataclass
class Results:
    """All of them."""

    found: list[Result] = field(default_factory=list)

    def add(self, client: str, api: str, exchange: Exchange, outcome: Outcome) -> None:
        """One more.

        Args:
            exchange: one of its requests, whose instructions and tools are counted.
        """
        tools = exchange.body.get("tools") or []
        said = [exchange.body.get("system"), exchange.body.get("instructions"), *_instructions(exchange.body)]
        num_letters = sum(len(json.dumps(each, ensure_ascii=False)) for each in [*tools, *said] if each)
        outcomes = (outcome.num_turns, outcome.num_continued, outcome.reasons)
        self.found.append(Result(client, api, len(tools), num_letters, *outcomes))

    def save(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps([asdict(each) for each in self.found], indent=1) + "\n")


def _instructions(body: dict[str, object]) -> Iterator[object]:
    messages = body["messages" if "messages" in body else "input"]
    assert isinstance(messages, list)
    yield from (each["content"] for each in messages if each.get("role") in ("system", "developer"))


def table(found: Sequence[Result]) -> Iterator[str]:
    """Lines of Markdown: a row for each client."""
    yield "| client | asks | tools | letters of instructions and tools, about | turns that were continued | where not |"
    yield "| --- | --- | --- | --- | --- | --- |"
    rows = dict.fromkeys((each.client, each.api) for each in found)
    for client, api in rows:
        of_row = [each for each in found if (each.client, each.api) == (client, api)]
        num_tools, num_letters = max((each.num_tools, each.num_letters) for each in of_row)
        turns = f"{sum(each.num_continued for each in of_row)} of {sum(each.num_turns for each in of_row)}"
        cells = [
            client,
            f"`{api}`",
            str(num_tools),
            _about(num_letters),
            turns,
            reasons_of(each.reasons for each in of_row),
        ]
        yield f"| {' | '.join(cells)} |"


def _about(number: int) -> str:
    """Two digits of it: instructions name folders and dates, which are others in each run."""
    return f"{float(f'{number:.2g}'):,.0f}"


def written(page: str, found: Sequence[Result]) -> str:
    """A page with the table. Raises ValueError where it has no place for it."""
    return with_table(page, "agents", table(found))


if __name__ == "__main__":
    given = [Result(**each) for each in json.loads(Path(sys.argv[1]).read_text())]
    PAGE.write_text(written(PAGE.read_text(), given))
