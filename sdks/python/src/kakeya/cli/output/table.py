"""Lists on standard output: a table for people, a JSON document for programs."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from kakeya.cli.output import byte_count
from kakeya.cli.output.byte_count import Bytes

Cell = str | int
"""An integer is shown with its thousands apart, `Bytes` in KiB and so on, both to the right."""

_FREE_TEXT = "LABEL"
_MOST_FREE_TEXT = 40  # letters; clients may send 256 bytes


def print_list(
    documents: Sequence[Any], header: Sequence[str], rows: Sequence[Sequence[Cell]], *, as_json: bool, empty: str
) -> None:
    """Prints the one or the other; `empty` goes to standard error where there is nothing to put into a table."""
    if as_json:
        print_json(documents)
    elif rows:
        print_table(header, rows)
    else:
        print(empty, file=sys.stderr)


def print_json(document: Any) -> None:
    print(json.dumps(document, indent=2))


def print_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    print("\n".join(table_lines(header, rows)))


def table_lines(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Columns as wide as what is in them."""
    shown = [[_shown(cell, name) for cell, name in zip(row, header, strict=True)] for row in rows]
    lines = [[printable(name) for name in header], *shown]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rights = [all(isinstance(cell, int) for cell in column) for column in zip(*rows, strict=True)]
    all_cells = [zip(line, widths, rights, strict=True) for line in lines]
    return [
        "  ".join(f"{cell:{'>' if right else '<'}{width}}" for cell, width, right in cells).rstrip()
        for cells in all_cells
    ]


def printable(text: str) -> str:
    """Text from elsewhere, unable to move the cursor or to change colours."""
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text)


def _shown(cell: Cell, column: str) -> str:
    if isinstance(cell, Bytes):
        return byte_count.show(cell)
    if isinstance(cell, int):
        return f"{cell:,}"
    text = printable(cell) or "-"
    is_long = column == _FREE_TEXT and len(text) > _MOST_FREE_TEXT
    return f"{text[: _MOST_FREE_TEXT - 1]}…" if is_long else text
