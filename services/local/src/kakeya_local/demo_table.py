"""The demo's live table: a row for each conversation in a terminal, a line for each turn elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table

from kakeya_local.demo_report import Turn

_COLUMNS = ("conversation", "turn", "history", "new tokens", "prefill ms", "decode ms", "kv_live_bytes")


class TurnTable(Protocol):
    """Shows turns as they come."""

    def add(self, turn: Turn) -> None: ...


@contextmanager
def turn_table(console: Console) -> Iterator[TurnTable]:
    """The form that suits the console."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield _LiveTable(live)


class _LiveTable:
    def __init__(self, live: Live) -> None:
        self._live = live
        self._latest: dict[int, Turn] = {}

    def add(self, turn: Turn) -> None:
        self._latest[turn.conversation] = turn
        table = Table(*_COLUMNS, box=None, pad_edge=False)
        for column in table.columns:
            column.justify = "right"
        for latest in self._latest.values():
            table.add_row(*_cells(latest))
        self._live.update(table, refresh=True)


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._console.print("  ".join(_COLUMNS))

    def add(self, turn: Turn) -> None:
        cells = zip(_cells(turn), _COLUMNS, strict=True)
        self._console.print("  ".join(cell.rjust(len(column)) for cell, column in cells))


def _cells(turn: Turn) -> tuple[str, ...]:
    return (
        str(turn.conversation),
        str(turn.turn),
        str(turn.history_length),
        f"+{turn.new_tokens}",
        f"{turn.prefill_seconds * 1e3:.1f}",
        f"{turn.decode_seconds * 1e3:.1f}",
        f"{turn.kv_live_bytes:,}",
    )
