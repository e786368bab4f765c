"""The application of `kakeya top`, on textual."""

from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Footer, Static

from kakeya import AsyncClient, KakeyaError, WatchedRuntime, WatchedSession
from kakeya.cli.flags.connection import Connection
from kakeya.cli.output import byte_count, duration
from kakeya.cli.output.table import printable
from kakeya.cli.top import lane_bars

_COLUMNS = ("SESSION", "TENANT", "STATE", "HISTORY", "SEES", "KV LIVE", "PREFILL", "FIRST TOKEN", "IDLE", "LABEL")
_ORDERS = ("used last", "history", "KV live")
# A terminal shows fewer; what comes behind is idle for longest.
_MAX_ROWS = 200


class TopApp(App[None]):
    """Follows a runtime until q or Ctrl-C.

    Args:
        connection: how it is reached.

    Attributes:
        error: what has ended it; None: the person has.
    """

    TITLE = "kakeya top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
        Binding("s", "sort", "Sort"),
    ]
    CSS = """
    #sums { height: auto; padding: 0 1; background: $boost; }
    #workers { height: auto; max-height: 40%; padding: 0 1; }
    DataTable { height: 1fr; }
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.error: KakeyaError | None = None
        self._connection = connection
        self._runtime = WatchedRuntime()
        self._order = 0

    def compose(self) -> ComposeResult:
        yield Static("connecting", id="sums")
        with VerticalScroll(id="workers"):
            yield Static(id="lanes")
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(DataTable).add_columns(*_COLUMNS)
        self.run_worker(self._follow(), exit_on_error=False)

    def action_sort(self) -> None:
        """Sorts by the next column."""
        self._order = (self._order + 1) % len(_ORDERS)
        self._draw()

    async def _follow(self) -> None:
        to = self._connection
        try:
            async with AsyncClient(to.address, api_key=to.api_key, credentials=to.credentials) as client:
                async for event in client.watch():
                    self._runtime.apply(event)
                    if not event.continues:
                        self._draw()
        except KakeyaError as error:
            self.error = error
            self.exit()

    def _draw(self) -> None:
        runtime = self._runtime
        sums = runtime.fleet
        self.query_one("#sums", Static).update(
            f"sessions {sums.num_sessions:,}   lanes {sums.num_lanes_held:,} of {sums.num_lanes:,}   "
            f"KV live {byte_count.show(sums.kv_live_bytes)}, reserved {byte_count.show(sums.reserved_bytes)} of "
            f"{byte_count.show(sums.slab_bytes)}   waiting {sums.num_waiting:,}   sorted by {_ORDERS[self._order]}"
        )
        self.query_one("#lanes", Static).update(Text("\n").join(lane_bars.lines(runtime)))
        table = self.query_one(DataTable)
        place = table.cursor_row
        table.clear()
        for session in sorted(runtime.sessions.values(), key=self._rank, reverse=True)[:_MAX_ROWS]:
            table.add_row(*_row(session, runtime.at), key=session.session_id)
        table.move_cursor(row=place)

    def _rank(self, session: WatchedSession) -> tuple[float, ...]:
        by = (session.idle_since, session.history_length, session.kv_live_bytes)[self._order]
        return (float(session.busy and self._order == 0), by)


def _row(session: WatchedSession, at: float) -> list[Text]:
    turn = session.last_turn
    cells = [
        printable(session.session_id),
        printable(session.tenant) or "-",
        "busy" if session.busy else session.state.value,
        f"{session.history_length:,}",
        f"{sum(map(len, session.retained)):,}",
        byte_count.show(session.kv_live_bytes),
        _seconds(turn.prefill_seconds) if turn else "-",
        _seconds(turn.first_token_seconds) if turn else "-",
        "-" if session.busy else duration.show(at - session.idle_since),
        printable(session.label),
    ]
    return [Text(cell, justify="right" if 3 <= number <= 7 else "left") for number, cell in enumerate(cells)]


def _seconds(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms" if seconds < 10 else f"{seconds:,.1f} s"
