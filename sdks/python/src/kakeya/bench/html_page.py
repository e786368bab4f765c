"""A report as an HTML page that needs nothing else: no script, no style sheet, no picture from elsewhere.

The JSON document is not in it but beside it, and linked: of a run of days it has megabytes, and a page is there to be
opened, mailed and printed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from kakeya.bench.page_style import CSS
from kakeya.bench.pictures import Picture

_DASH = "\N{EN DASH}"
_SIGNS = {"passed": "✓", "failed": "✗", "undecided": "?", "skipped": _DASH}


@dataclass(frozen=True, slots=True)
class Badge:
    """What was judged, in words, by a sign and by colour.

    Attributes:
        outcome: passed, failed, undecided or skipped; it chooses sign and colour.
        text: what is read; empty for the outcome.
    """

    outcome: str
    text: str = ""


Cell = str | int | Badge | None
"""Integers get separators of thousands; None is a dash."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        is_number: it is aligned on the right, in digits of one width.
    """

    name: str
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells; the first cell of each says what the row is about."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture in a page.

    Attributes:
        alt: what it shows, for who cannot see it.
        caption: how to read it.
    """

    picture: Picture
    alt: str
    caption: str


Block = str | Table | Drawing
"""A string is a paragraph."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page, below a heading."""

    heading: str
    blocks: Sequence[Block]


def facts_table(facts: Mapping[str, object]) -> Table:
    """Names and values, with what is nested in one line."""
    return Table([Column("name"), Column("value")], [[name, _fact(value)] for name, value in facts.items()])


def page(title: str, badges: Sequence[Badge], sections: Sequence[Section], *, json_name: str = "report.json") -> bytes:
    """The page, in UTF-8.

    Args:
        badges: beside the title: what the whole is like.
        json_name: the file beside it that has all figures.
    """
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        # Whatever a name or an error says: nothing is loaded and nothing runs.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(title)}</title>",
        f"<style>{CSS}</style>",
        "</head>",
        "<body>",
        f"<header><h1>{escape(title)}</h1><p>{' '.join(map(_badge, badges))}</p></header>",
        "<main>",
        *map(_section, sections),
        "</main>",
        f'<footer>All that was measured is in <a href="{escape(json_name)}">{escape(json_name)}</a>.</footer>',
        "</body>",
        "</html>",
        "",
    ]
    # A path in an option may have bytes that are no text, which Python carries as lone surrogates.
    return "\n".join(parts).encode(errors="backslashreplace")


def _section(section: Section) -> str:
    blocks = "\n".join(_block(block, section.heading) for block in section.blocks)
    return f"<section>\n<h2>{escape(section.heading)}</h2>\n{blocks}\n</section>"


def _block(block: Block, heading: str) -> str:
    match block:
        case str():
            return f"<p>{escape(block)}</p>"
        case Table():
            return _table(block, heading)
        case Drawing():
            return (
                f'<figure><div role="img" aria-label="{escape(block.alt)}">{block.picture.svg}</div>'
                f"<figcaption>{escape(block.caption)}</figcaption></figure>"
            )


def _table(table: Table, heading: str) -> str:
    head = "".join(f'<th scope="col"{_class(column)}>{escape(column.name)}</th>' for column in table.columns)
    body = "\n".join(_row(table.columns, row) for row in table.rows)
    # Wide tables are scrolled by themselves, by keyboard, too.
    return (
        f'<div class="scrolled" role="region" aria-label="{escape(heading)}" tabindex="0">\n<table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</div>"
    )


def _row(columns: Sequence[Column], row: Sequence[Cell]) -> str:
    first, *others = row
    cells = "".join(f"<td{_class(column)}>{_cell(cell)}</td>" for column, cell in zip(columns[1:], others, strict=True))
    return f'<tr><th scope="row"{_class(columns[0])}>{_cell(first)}</th>{cells}</tr>'


def _class(column: Column) -> str:
    return ' class="number"' if column.is_number else ""


def _cell(cell: Cell) -> str:
    match cell:
        case None:
            return _DASH
        case Badge():
            return _badge(cell)
        case bool():
            return "yes" if cell else "no"
        case int():
            return f"{cell:,}"
        case str():
            return escape(cell)


def _badge(badge: Badge) -> str:
    sign, text = _SIGNS[badge.outcome], escape(badge.text or badge.outcome)
    return f'<span class="badge {badge.outcome}"><span aria-hidden="true">{sign}</span> {text}</span>'


def _fact(value: object) -> Cell:
    match value:
        case None | bool() | int() | str():
            return value
        case Mapping():
            return ", ".join(f"{name} {_fact(each)}" for name, each in value.items())
        case _:
            return str(value)
