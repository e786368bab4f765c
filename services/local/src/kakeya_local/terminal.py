"""Tables on standard output."""

import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

_PIPE_COLUMNS = 1000  # a pipe has no width of its own: whoever reads it wants lines and paths whole


def print_table(rows: Iterable[Iterable[str]], header: tuple[str, ...] = ()) -> None:
    """Prints rows of rich markup, wrapped to a terminal's width and unwrapped elsewhere."""
    table = Table(*header, box=None, show_header=bool(header), pad_edge=False)
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS).print(table)
