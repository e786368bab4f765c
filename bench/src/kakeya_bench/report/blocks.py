"""What a report says, before it is a page or lines in a terminal: sections of sentences, tables and pictures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kakeya_bench.report import quantities
from kakeya_bench.report.pictures import Picture

MAX_FAILURES = 20
_STATES = {
    "complete": "passed",
    "running": "undecided",
    "interrupted": "undecided",
    "given_up": "failed",
    "broken_off": "failed",
}


@dataclass(frozen=True, slots=True)
class Badge:
    """What was judged, in words, by a sign and by colour.

    Attributes:
        outcome: passed, failed, undecided or skipped; it chooses sign and colour.
        text: what is read; empty for the outcome.
    """

    outcome: str
    text: str = ""

    def __str__(self) -> str:
        return self.text or self.outcome


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, of which the first says what the row is about.

    Attributes:
        rows: texts, badges, numbers and `quantities`; None is a dash.
        on_page: columns that stand on the page alone.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    on_page: Sequence[str] = ()

    @property
    def numbers(self) -> list[bool]:
        """Which columns are aligned on the right: those with nothing but numbers."""
        columns = [[row[place] for row in self.rows] for place in range(len(self.columns))]
        known = [[cell for cell in cells if cell is not None] for cells in columns]
        return [bool(cells) and all(map(quantities.is_number, cells)) for cells in known]


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture in a page.

    Attributes:
        alt: what it shows, for who cannot see it.
        caption: how to read it.
    """

    picture: Picture
    alt: str
    caption: str


Block = str | Table | Figure
"""A string is a paragraph."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report, below a heading."""

    heading: str
    blocks: Sequence[Block]


def facts(heading: str, known: Mapping[str, object]) -> Section:
    """Names and values, with what is nested in one line."""
    return Section(heading, [Table(["name", "value"], [[name, _fact(value)] for name, value in known.items()])])


def _fact(value: object) -> object:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {quantities.show(_fact(each))}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(quantities.show(_fact(each)) for each in value)
    return value if value is None or isinstance(value, str | int) else str(value)


def circumstances(document: Mapping[str, Any]) -> list[Section]:
    """What the figures of a run are of: the model and its worker where they are known, what was asked, where it ran."""
    sections = []
    if model := document["model"]:
        sections += [
            facts("Model", {name: value for name, value in model.items() if name != "worker"}),
            facts("Worker", model["worker"] or {"worker": "the router tells operators only"}),
        ]
    return [*sections, facts("Options", document["options"]), facts("Environment", document["environment"])]


def state(noun: str, name: str) -> Badge:
    """How far a run came, or what else it is that the noun names."""
    return Badge(_STATES[name], f"{noun} {name.replace('_', ' ')}")


def gates(verdicts: Mapping[str, Mapping[str, Any]]) -> Table:
    """What each gate says, as verdicts stand in documents."""
    return Table(
        ["gate", "outcome", "found", "formula"],
        [[name, Badge(gate["outcome"]), gate["reason"], gate["formula"]] for name, gate in verdicts.items()],
        on_page=["formula"],
    )


def worst(verdicts: Mapping[str, Mapping[str, Any]]) -> Badge:
    """What the gates say together."""
    found = {gate["outcome"] for gate in verdicts.values()}
    outcome = next((each for each in ("failed", "undecided", "passed") if each in found), "skipped")
    return Badge(outcome, f"gates {outcome}")


def failures(turns: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> list[Section]:
    """The turns that failed, the first ones with their errors; nothing where none did.

    Args:
        columns: which of a turn's fields tell which turn it is.
    """
    failed = [turn for turn in turns if turn["error"] is not None]
    if not failed:
        return []
    rows = [[*(turn[name] for name in columns), turn["error"]] for turn in failed[:MAX_FAILURES]]
    shown = f"{len(rows)} of {len(failed):,}."
    return [
        Section("Turns that failed", [shown, Table([*(name.replace("_", " ") for name in columns), "error"], rows)])
    ]
