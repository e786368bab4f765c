"""--watch of lists: they go on with what changes, from the router's Watch, until Ctrl-C."""

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kakeya.cli.commands.admin_calls import AdminCalls
from kakeya.cli.output import moment
from kakeya.cli.output.document import document
from kakeya.cli.output.redrawn import Redrawn
from kakeya.cli.output.table import Cell, table_lines
from kakeya_stubs.admin.v1 import admin_pb2 as pb

T = TypeVar("T", pb.Session, pb.WorkerStatus)


def flag(parser: ArgumentParser) -> None:
    """--watch of a list that takes --json."""
    parser.add_argument(
        "--watch",
        action="store_true",
        help="go on with what changes until Ctrl-C; with --json a line for each change",
    )


@dataclass(frozen=True)
class WatchedList(Generic[T]):
    """A list of one kind of things.

    Attributes:
        kind: "session" or "worker", as lines of --json name it.
        news: of a response, the things that are new or changed.
        gone: the names of those that are gone.
        name: of a thing.
        row: of the table; `order` sorts things.
        is_shown: whether the flags ask for it.
    """

    kind: str
    news: Callable[[pb.WatchResponse], Iterable[T]]
    gone: Callable[[pb.WatchResponse], Iterable[str]]
    name: Callable[[T], str]
    header: Sequence[str]
    row: Callable[[T], Sequence[Cell]]
    order: Callable[[T], Any]
    is_shown: Callable[[T], bool] = lambda _: True

    def watch(self, admin: AdminCalls, *, as_json: bool) -> int:
        """Until it is interrupted, or the router is not to be reached any more: raises KakeyaError."""
        if as_json:
            for response in admin.watch():
                for line in self._lines(response):
                    print(json.dumps(line), flush=True)
        else:
            self._draw(admin)
        return 0

    def _lines(self, response: pb.WatchResponse) -> Iterator[dict[str, Any]]:
        at = moment.iso(response.at)
        if response.begins:
            yield {"at": at, "change": "begins"}
        for thing in filter(self.is_shown, self.news(response)):
            yield {"at": at, "change": "is", self.kind: document(thing)}
        for name in self.gone(response):
            yield {"at": at, "change": "gone", "id": name}

    def _draw(self, admin: AdminCalls) -> None:
        things: dict[str, T] = {}
        with Redrawn() as screen:
            for response in admin.watch():
                if response.begins:
                    things.clear()
                things |= {self.name(thing): thing for thing in self.news(response) if self.is_shown(thing)}
                for name in self.gone(response):
                    things.pop(name, None)
                if not response.continues:
                    rows = [self.row(thing) for thing in sorted(things.values(), key=self.order)]
                    screen.draw(table_lines(self.header, rows) if rows else [f"no {self.kind}s"])
