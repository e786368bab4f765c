"""The application of `kakeya top`, without a terminal."""

import asyncio

import pytest

from kakeya import Unauthenticated, WatchedRuntime, WatchEvent
from kakeya.cli.flags.connection import Connection
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import fails
from tests.unit.sdk.watched import AT, everything, session, worker

pytest.importorskip("textual")


async def _until(holds: object) -> None:
    assert callable(holds)
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


async def test_rows_are_sorted_by_each_column_in_turn(admin: ScriptedAdmin) -> None:
    from textual.widgets import DataTable

    from kakeya.cli.top.top_app import TopApp

    turn = pb.LastTurn(prefill_seconds=12, first_token_seconds=0.5, ended_at=AT)
    sessions = [
        session("old", idle_seconds=9, history_length=900, last_turn=turn),
        session("new", idle_seconds=1, history_length=7, kv_live_bytes=4000),
        session("busy", idle_seconds=20, busy=True, history_length=50),
    ]
    admin.streams.append([everything(*sessions)])
    app = TopApp(Connection(admin.address))
    async with app.run_test() as pilot:
        table = app.query_one(DataTable)

        def first() -> str:
            return str(table.get_row_at(0)[0]) if table.row_count else ""

        await _until(lambda: table.row_count == 3)
        assert first() == "busy"
        for expected in ("old", "new", "busy"):
            await pilot.press("s")
            await _until(lambda expected=expected: first() == expected)
        await pilot.press("q")
    assert app.error is None


async def test_an_error_ends_it(admin: ScriptedAdmin) -> None:
    from kakeya.cli.top.top_app import TopApp

    admin.streams += [[everything(), fails("UNAUTHENTICATED")], []]
    app = TopApp(Connection(admin.address))
    async with app.run_test():
        await _until(lambda: app.error is not None)
    assert isinstance(app.error, Unauthenticated)


def test_lanes_are_drawn() -> None:
    from kakeya.cli.top import lane_bars

    def lines(response: pb.WatchResponse) -> list[str]:
        runtime = WatchedRuntime()
        runtime.apply(WatchEvent.from_wire(response))
        return [line.plain for line in lane_bars.lines(runtime)]

    assert lines(pb.WatchResponse(begins=True)) == ["no worker is shown to this key"]
    held = [session("a", lane=0, kv_live_bytes=0), session("b", lane=2, busy=True, kv_live_bytes=2000)]
    queue = pb.PoolQueue(pool="tiny", num_waiting=1)
    drawn = lines(everything(*held, queues=[queue], workers=[worker(draining=True)]))
    assert drawn[0].endswith("draining")
    assert drawn[1:] == ["▁·█", "queue of tiny: 1"]
    many = lines(everything(workers=[worker(num_lanes=300)]))
    assert many[1] == 256 * "·" + " and 44 more"
