"""Lists on standard output: a table for people, a JSON document for programs."""

import json
import sys
from collections.abc import Sequence
from typing import Any

Cell = str | int
"""An integer is shown with its thousands apart, and to the right."""


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
    """Columns as wide as what is in them."""
    lines = [[printable(name) for name in header], *([_shown(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rights = [all(isinstance(cell, int) for cell in column) for column in zip(*rows, strict=True)]
    for line in lines:
        cells = zip(line, widths, rights, strict=True)
        print("  ".join(f"{cell:{'>' if right else '<'}{width}}" for cell, width, right in cells).rstrip())


def printable(text: str) -> str:
    """Text from elsewhere, unable to move the cursor or to change colours."""
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text)


def _shown(cell: Cell) -> str:
    return f"{cell:,}" if isinstance(cell, int) else printable(cell) or "-"
