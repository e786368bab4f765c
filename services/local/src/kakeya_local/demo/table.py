"""How far the demo is: a row for each conversation in a terminal, a line now and then elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table

from kakeya_local.demo.turn import Turn

_COLUMNS = ("conversation", "turn", "history", "new tokens", "prefill ms", "decode ms", "kv_live_bytes")
_TURNS_PER_LINE = 10


class TurnTable(Protocol):
    """Shows turns as they come."""

    def add(self, turn: Turn) -> None: ...


@contextmanager
def turn_table(console: Console, report: Callable[[str], None], num_turns: int) -> Iterator[TurnTable]:
    """The form that suits the console; the table goes when it is left.

    Args:
        report: gets the lines, where there is no table.
        num_turns: of each conversation.
    """
    if not console.is_terminal:
        yield _Lines(report, num_turns)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
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
    def __init__(self, report: Callable[[str], None], num_turns: int) -> None:
        self._report = report
        self._num_turns = num_turns

    def add(self, turn: Turn) -> None:
        if turn.conversation == 1 and turn.turn % _TURNS_PER_LINE == 1:
            self._report(f"the conversations are at turn {turn.turn} of {self._num_turns}")


def _cells(turn: Turn) -> tuple[str, ...]:
    return (
        str(turn.conversation),
        str(turn.turn),
        str(turn.history_length),
        f"+{turn.new_tokens}",
        _milliseconds(turn.prefill_seconds),
        _milliseconds(turn.decode_seconds),
        f"{turn.kv_live_bytes:,}",
    )


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f}"
