"""A report as lines on standard output."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as Grid

from kakeya.cli.output.table import printable
from kakeya_bench.report import quantities
from kakeya_bench.report.blocks import Section, Table

_PIPE_COLUMNS = 1_000  # a pipe has no width of its own, and its reader wants lines whole


def print_sections(title: str, sections: Sequence[Section]) -> None:
    """The sentences and tables, without headings; pictures are left out."""
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _PIPE_COLUMNS
    console.print(printable(title))
    for block in (block for section in sections for block in section.blocks):
        if isinstance(block, str):
            console.print(printable(block))
        elif isinstance(block, Table) and block.rows:
            grid, width = _grid(block), console.width
            # A terminal that is too narrow for the numbers breaks the lines: none is cut.
            narrowest = Measurement.get(console, console.options.update_width(_PIPE_COLUMNS), grid).minimum
            console.width = max(width, narrowest)
            console.print(grid, soft_wrap=False)
            console.width = width


def _grid(table: Table) -> Grid:
    grid = Grid(box=None, pad_edge=False, header_style="")
    kept = [place for place, name in enumerate(table.columns) if name not in table.on_page]
    columns = [table.columns[place].upper() for place in kept]
    cells = [[printable(quantities.show(row[place])) for place in kept] for row in table.rows]
    for place, heading, *column in zip(kept, columns, *cells, strict=True):
        if table.numbers[place]:
            grid.add_column(heading, justify="right", width=max(map(cell_len, [heading, *column])))
        else:
            grid.add_column(heading)
    for row in cells:
        grid.add_row(*row)
    return grid
