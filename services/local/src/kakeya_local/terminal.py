"""Tables on standard output."""

import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

_PIPE_COLUMNS = 1000  # a pipe has no width of its own: its reader wants lines and paths whole


def print_table(rows: Iterable[Iterable[str | Text]], header: tuple[str, ...] = ()) -> None:
    """Prints rows, wrapped to a terminal's width and unwrapped elsewhere; what is a `str` is shown as it is."""
    table = Table(*header, box=None, show_header=bool(header), pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS).print(table)
