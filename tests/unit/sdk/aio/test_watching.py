"""Watching a runtime."""

import grpc
import pytest

import kakeya
from kakeya import AsyncClient, FleetSums, LastTurn, PoolQueue, SessionState, WatchedRuntime
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import fails, fails_plainly
from tests.unit.sdk.watched import AT, everything, session, worker


async def test_events_say_what_there_is(admin: ScriptedAdmin) -> None:
    turn = pb.LastTurn(prefill_seconds=0.5, first_token_seconds=0.6, total_seconds=2, num_tokens=7, ended_at=AT - 3)
    retained = [pb.HistoryRange(start=0, end=4), pb.HistoryRange(start=84, end=100)]
    shown = session("a", tenant="acme", client_label="mine", lane=0, idle_seconds=3, retained=retained, last_turn=turn)
    queue = pb.PoolQueue(pool="tiny", num_waiting=2, tenants=[pb.QueuedTenant(tenant="acme", num_waiting=1)])
    late = worker("worker-b", last_heartbeat_age_seconds=4)
    admin.streams.append([everything(shown, session("b", state="of tomorrow"), workers=[late], queues=[queue])])
    async with AsyncClient(admin.address, api_key="a-key") as client:
        event = await anext(client.watch(interval_seconds=2.5))
    assert admin.requests["Watch"] == [pb.WatchRequest(interval_seconds=2.5)]
    assert admin.metadata["Watch"][0]["authorization"] == "Bearer a-key"
    assert (event.begins, event.continues, event.at) == (True, False, AT)
    first, second = event.sessions
    assert (first.session_id, first.tenant, first.label, first.lane, first.idle_since) == (
        "a",
        "acme",
        "mine",
        0,
        AT - 3,
    )
    assert first.retained == (range(4), range(84, 100))
    assert first.last_turn == LastTurn(0.5, 0.6, 2, 7, AT - 3)
    assert (second.lane, second.last_turn, second.state) == (None, None, SessionState.UNSPECIFIED)
    assert event.queues == (PoolQueue("tiny", 2, {"acme": 1}),)
    assert event.workers[0].late_seconds == 4
    assert event.fleet == FleetSums(num_workers=1, num_lanes=3, num_lanes_held=2, num_sessions=2)


async def test_events_add_up(admin: ScriptedAdmin) -> None:
    admin.streams.append(
        [
            everything(session("a"), session("b")),
            pb.WatchResponse(at=AT + 1, sessions=[session("a", history_length=101)], gone_session_ids=["b", "never"]),
            pb.WatchResponse(at=AT + 2, gone_incarnations=["worker-a-1", "never"], gone_pools=["tiny", "never"]),
            everything(session("c")),
        ]
    )
    runtime = WatchedRuntime()
    seen = []
    async with AsyncClient(admin.address) as client:
        async for event in client.watch():
            runtime.apply(event)
            lengths = {each.session_id: each.history_length for each in runtime.sessions.values()}
            seen.append((lengths, len(runtime.workers), len(runtime.queues), runtime.fleet.num_sessions, runtime.at))
            if len(seen) == 4:
                break
    assert seen == [
        ({"a": 100, "b": 100}, 1, 1, 2, AT),
        ({"a": 101}, 1, 1, 2, AT + 1),
        ({"a": 101}, 0, 0, 2, AT + 2),
        ({"c": 100}, 1, 1, 1, AT),
    ]


async def test_who_holds_which_lane(admin: ScriptedAdmin) -> None:
    sessions = (
        session("new"),
        session("second", lane=1),
        session("as well", lane=1),
        session("nobody's", reserved_bytes=0),
        session("elsewhere", worker_id="worker-b"),
        session("too many", lane=7),
    )
    admin.streams.append([everything(*sessions)])
    runtime = WatchedRuntime()
    async with AsyncClient(admin.address) as client:
        async for event in client.watch():
            runtime.apply(event)
            break
    (only,) = runtime.workers.values()
    assert [each and each.session_id for each in runtime.lanes(only)] == ["new", "second", "as well"]
    runtime.sessions.clear()
    assert runtime.lanes(only) == [None, None, None]


async def test_where_the_connection_breaks_it_begins_anew(admin: ScriptedAdmin) -> None:
    admin.streams += [
        [everything(session("a")), fails("DRAINING")],
        [fails("STORE_UNAVAILABLE")],
        [everything(session("b"))],
    ]
    async with AsyncClient(admin.address) as client:
        seen = []
        async for event in client.watch():
            seen.append([each.session_id for each in event.sessions])
            if len(seen) == 2:
                break
    assert seen == [["a"], ["b"]]


async def test_it_does_not_try_for_ever(admin: ScriptedAdmin) -> None:
    admin.streams += [[fails("STORE_UNAVAILABLE")] for _ in range(3)]
    async with AsyncClient(admin.address, max_attempts=2) as client:
        with pytest.raises(kakeya.StoreUnavailable):
            async for _ in client.watch():
                pass
    assert len(admin.streams) == 1


async def test_what_cannot_be_mended_is_raised_at_once(admin: ScriptedAdmin) -> None:
    admin.streams += [[everything(), fails("UNAUTHENTICATED")], [fails_plainly(grpc.StatusCode.UNIMPLEMENTED)], []]
    async with AsyncClient(admin.address) as client:
        with pytest.raises(kakeya.Unauthenticated):
            async for _ in client.watch():
                pass
        with pytest.raises(kakeya.RpcFailed):
            async for _ in client.watch():
                pass


async def test_a_stream_that_the_runtime_ends_has_ended(admin: ScriptedAdmin) -> None:
    admin.streams += [[everything()], []]
    async with AsyncClient(admin.address) as client:
        assert [event.begins async for event in client.watch()] == [True]


async def test_events_come_in_the_messages_of_the_contract(admin: ScriptedAdmin) -> None:
    admin.streams += [[everything(session("a"))], []]
    async with AsyncClient(admin.address) as client:
        responses = [response async for response in client.watch_responses()]
    assert [[each.session_id for each in response.sessions] for response in responses] == [["a"]]
