"""What became of a run, as JSON and, line by line the same, for people."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from rich.console import Console, RenderableType
from rich.table import Table

_MAX_TOLD = 5
_MAX_SHOWN, _MAX_IN_LINE = 20, 3


@dataclass
class Tally:
    """What became of calls, cases or clients.

    Attributes:
        outcomes: by what they were.
        kinds: how they were made.
        num_counted: all of them.
        violations: what must not have happened, with what is needed to see it again; the first few of each kind.
        num_violations: all of them.
    """

    outcomes: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    kinds: Counter[str] = field(default_factory=Counter)
    num_counted: int = 0
    violations: list[str] = field(default_factory=list)
    num_violations: int = 0
    _told: Counter[str] = field(default_factory=Counter)

    def count(self, what: str, outcome: str, kind: str) -> None:
        self.outcomes[what][outcome] += 1
        self.kinds[kind] += 1
        self.num_counted += 1

    def violate(self, *found: str, kind: str = "") -> None:
        """Args:
        kind: which of them are so much alike that a few are enough; "": none.
        """
        for what in found:
            self.num_violations += 1
            self._told[kind or what] += 1
            if self._told[kind or what] <= _MAX_TOLD:
                self.violations.append(what)

    def by_outcome(self) -> dict[str, int]:
        """Whatever they were."""
        return dict(sum(self.outcomes.values(), Counter[str]()).most_common())

    def by_what(self) -> dict[str, dict[str, int]]:
        return {what: dict(outcomes) for what, outcomes in sorted(self.outcomes.items())}


@dataclass(frozen=True)
class Report:
    """Attributes:
    facts: what is known of the run.
    violations: what must not have happened, with what is needed to see it again; no machine excuses it.
    num_violations: all of them, as only the first few of each kind are listed.
    late: what took too long, of a machine that has nothing else to do.
    """

    facts: Mapping[str, Any]
    violations: Sequence[str]
    num_violations: int
    late: Sequence[str]

    @property
    def passed(self) -> bool:
        return not (self.num_violations or self.late)

    def write(self, path: Path) -> None:
        verdict = {"violations": self.violations, "num_violations": self.num_violations, "late": self.late}
        path.write_text(json.dumps({**self.facts, **verdict}, indent=2) + "\n")

    def show(self, console: Console) -> None:
        told = [f"VIOLATION: {what}" for what in (*self.violations, *self.late)]
        for line in (*(_shown(name.replace("_", " "), fact) for name, fact in self.facts.items()), *told):
            console.print(line, markup=False, soft_wrap=isinstance(line, str))
        number = self.num_violations + len(self.late)
        console.print("verdict: " + (f"BROKEN, {number} violations" if number else "kept"))


def _shown(title: str, fact: Any) -> RenderableType:
    if _has_rows(fact):
        return _table(title, fact)
    if isinstance(fact, Mapping) and len(fact) > _MAX_IN_LINE:
        return _table(title, {name: {"": value} for name, value in fact.items()})
    if isinstance(fact, list):
        return "\n    ".join([f"{title}: {len(fact)}", *map(str, fact[:_MAX_SHOWN])])
    return f"{title}: {_cell(fact)}"


def _has_rows(fact: Any) -> TypeGuard[Mapping[str, Mapping[str, Any]]]:
    return isinstance(fact, Mapping) and bool(fact) and all(isinstance(row, Mapping) for row in fact.values())


def _table(title: str, fact: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = dict(_rows(fact))
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    table = Table(title, box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right")
    for name, row in rows.items():
        table.add_row(name, *(_cell(row.get(column, "")) for column in columns))
    return table


def _rows(fact: Mapping[str, Mapping[str, Any]], prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, row in fact.items():
        if _has_rows(row):
            yield from _rows(row, f"{prefix}{name}, ")
        else:
            yield prefix + name.removeprefix("/kakeya."), row


def _cell(fact: Any) -> str:
    if isinstance(fact, Mapping):
        return ", ".join(f"{name}={_cell(value)}" for name, value in fact.items()) or "none"
    return str(fact)
