"""What runs, for pages: one stream of the runtime a key, however many look."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import pytest

from kakeya import AsyncClient, Unauthenticated
from kakeya_http_shim.live.board_json import Event
from kakeya_http_shim.live.feeds import Feeds
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from tests.unit.http_shim.served import eventually
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import fails
from tests.unit.sdk.watched import AT, everything, session


@pytest.fixture
def admin() -> Iterator[ScriptedAdmin]:
    admin = ScriptedAdmin()
    yield admin
    admin.stop()


@pytest.fixture
async def client(admin: ScriptedAdmin) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(admin.address, api_key="") as client:
        yield client


@pytest.fixture
async def stop() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
async def feeds(client: AsyncClient, stop: asyncio.Event) -> Feeds:
    return Feeds(client, 60.0, stop)


def _names(event: Event | None, kind: str = "sessions") -> list[str]:
    assert event is not None
    return sorted(each["session_id"] for each in event.get(kind, []))


async def test_pages_of_one_key_share_a_stream(feeds: Feeds, admin: ScriptedAdmin) -> None:
    admin.streams.append([everything(session("a", retained=[pb.HistoryRange(start=0, end=9)]))])
    async with aclosing(feeds.events("k")) as first, aclosing(feeds.events("k")) as second:
        event = await anext(first)
        assert event is not None
        assert (event["begins"], event["at"]) == (True, AT)
        assert event["fleet"]["num_lanes"] == 3
        assert [worker["worker_id"] for worker in event["workers"]] == ["worker-a"]
        assert [queue["pool"] for queue in event["queues"]] == ["tiny"]
        (shown,) = event["sessions"]
        assert (shown["session_id"], shown["retained"], shown["lane"]) == ("a", [[0, 9]], None)
        assert await anext(second) == event
        assert (feeds.num_streams, len(admin.requests["Watch"])) == (1, 1)
        assert admin.metadata["Watch"][0]["authorization"] == "Bearer k"
    await eventually(lambda: admin.num_watching == 0)
    assert feeds.num_streams == 0


async def test_each_key_has_its_own(feeds: Feeds, admin: ScriptedAdmin) -> None:
    admin.streams += [[everything(session("a"))], [everything(session("b"))], []]
    async with aclosing(feeds.events("one")) as first, aclosing(feeds.events("other")) as second:
        names = [_names(await anext(first)), _names(await anext(second))]
        assert sorted(names) == [["a"], ["b"]]
        assert feeds.num_streams == 2


async def test_then_only_what_changes_comes(feeds: Feeds, admin: ScriptedAdmin) -> None:
    change = pb.WatchResponse(at=AT + 1, sessions=[session("c")], gone_session_ids=["a"], gone_pools=["tiny"])
    parts = [everything(session("a"), continues=True), pb.WatchResponse(at=AT, sessions=[session("b")])]
    admin.streams.append([*parts, change])
    seen: set[str] = set()
    gone: set[str] = set()
    async with aclosing(feeds.events("")) as events:
        while "c" not in seen:
            event = await anext(events)
            assert event is not None
            seen |= {*_names(event)}
            gone |= {*event.get("gone_sessions", [])}
    assert gone <= {"a"}


async def test_after_a_break_what_is_not_there_any_more_goes(
    client: AsyncClient, admin: ScriptedAdmin, stop: asyncio.Event
) -> None:
    admin.streams += [[everything(session("a"), session("b")), fails("DRAINING")], [everything(session("b"))], []]
    feeds = Feeds(client, 60.0, stop)
    there: set[str] = set()
    async with aclosing(feeds.events("")) as events:
        while there != {"b"}:
            event = await anext(events)
            assert event is not None
            there = set() if event["begins"] else there
            there |= {*_names(event)}
            there -= {*event.get("gone_sessions", [])}


async def test_where_nothing_changes_that_is_told(
    client: AsyncClient, admin: ScriptedAdmin, stop: asyncio.Event
) -> None:
    admin.streams.append([everything()])
    async with aclosing(Feeds(client, 0.05, stop).events("")) as events:
        while await anext(events) is None:
            pass
        assert [await anext(events) for _ in range(2)] == [None, None]


async def test_what_the_runtime_refuses_the_page_is_told(feeds: Feeds, admin: ScriptedAdmin) -> None:
    admin.streams += [[fails("UNAUTHENTICATED")], []]
    with pytest.raises(Unauthenticated):
        await anext(feeds.events("bad"))
    assert feeds.num_streams == 0


async def test_events_end_with_the_server(feeds: Feeds, admin: ScriptedAdmin, stop: asyncio.Event) -> None:
    admin.streams.append([everything()])
    events = feeds.events("")
    await anext(events)
    stop.set()
    assert [event async for event in events] == []
    await eventually(lambda: admin.num_watching == 0)
