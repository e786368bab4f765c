"""Tunnels at a router, over real sockets: a worker is reached through them, and only the right one keeps one."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kakeya_router.lanes import admission_queue
from kakeya_router.store.fleet.worker_store import Identity
from kakeya_router.store.session_record import Incarnation, PoolName, WorkerId
from kakeya_router.tunnels import tunnel as one_tunnel
from kakeya_router.tunnels import tunnels as all_tunnels
from kakeya_router.tunnels.tunnel import NoWay, Tunnel
from kakeya_shared.errors.tree import (
    DeadlineExceeded,
    Draining,
    InvalidField,
    NoCapacity,
    PermissionDenied,
    Unauthenticated,
    UnknownIncarnation,
)
from kakeya_shared.tunnel.connection import Connection
from kakeya_stubs.admin.v1.admin_pb2 import RevokeTokenRequest
from kakeya_stubs.worker.v1 import registry_pb2 as pb
from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.keyed import keyed_on
from tests.unit.router.stack import Client, Stack, answer, eventually
from tests.unit.router.tunnels.far_end import FarEnd

PORT = {"tunnel_bind": "127.0.0.1:0"}


@pytest.fixture
async def client(stack: Stack) -> Client:
    return await stack.router(**PORT)


@pytest.fixture
async def worker(stack: Stack, client: Client, tmp_path: Path) -> FakeWorker:
    return await stack.worker(client, socket=tmp_path / "server")


@asynccontextmanager
async def _standing(worker: FakeWorker, client: Client) -> AsyncIterator[FarEnd]:
    """A tunnel that the routers know."""
    async with FarEnd(worker, client.registry) as end:
        await eventually(lambda: _is_known(client, end))
        yield end


async def _is_known(client: Client, end: FarEnd) -> bool:
    return any(end.welcome.router in worker.tunnels for worker in (await client.workers()).values())


async def _tokens(client: Client, session_id: str, number: int = 4) -> list[int]:
    answers = await client.generate(session_id, number)
    return [each.token_id for each in answers if each.HasField("token_id")]


async def test_a_worker_is_reached_through_its_tunnel(worker: FakeWorker, client: Client) -> None:
    async with _standing(worker, client):
        session_id = await client.session()
        await client.append(session_id, [1, 2, 3])
        assert len(await _tokens(client, session_id)) == 4
        status = (await client.workers())["worker-a"]
        assert (status.address, list(status.tunnels)) == ("", [client.address])
        assert await client.close(session_id) == 7


async def test_nobody_is_placed_where_there_is_no_way(worker: FakeWorker, client: Client) -> None:
    with pytest.raises(NoCapacity):
        await client.session()


async def test_who_waits_is_told_of_the_first_tunnel(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_queue, "TICK_SECONDS", 1000.0)  # who is not told never looks again
    client = await stack.router(**PORT, admission="queue", queue_seconds=60.0)
    worker = await stack.worker(client, socket=tmp_path / "server")
    waiting = asyncio.create_task(client.session())
    await eventually(lambda: _has_waiter(stack))
    async with _standing(worker, client):
        assert await waiting


async def _has_waiter(stack: Stack) -> bool:
    return await stack.redis.exists("kakeya:{tiny}:queue") == 1


async def test_an_answer_goes_on_where_it_was_once_the_tunnel_is_back(worker: FakeWorker, client: Client) -> None:
    async with _standing(worker, client):
        session_id = await client.session()
        await client.append(session_id, [1, 2, 3])
        worker.pause_in = 5
        call = aiter(client.generating(session_id, 200))
        seen = [(await anext(call)).token_id for _ in range(5)]
    worker.tunnels = [client.address]  # as the link broke: nothing was said of it
    worker.flowing.set()
    await eventually(lambda: _stands_idle(worker, session_id))
    await asyncio.sleep(1.5)  # longer than a worker is asked that can be dialled
    async with FarEnd(worker, client.registry):
        seen += [response.token_id async for response in call if response.HasField("token_id")]
    assert seen == worker.lanes[session_id].token_ids[3:]
    assert len(seen) == 200
    assert worker.calls["OpenSession"] == 1


async def test_a_lane_that_is_opened_when_the_tunnel_breaks_is_asked_for_again(
    worker: FakeWorker, client: Client
) -> None:
    async with _standing(worker, client):
        worker.flowing.clear()
        opening = asyncio.create_task(client.session())
        await eventually(lambda: _was_asked(worker, 1))
    worker.tunnels = [client.address]  # as the link broke: nothing was said of it
    worker.flowing.set()
    async with FarEnd(worker, client.registry):
        session_id = await opening
        assert await _was_asked(worker, 2)
        assert [*worker.lanes] == [session_id]


async def _was_asked(worker: FakeWorker, num_calls: int) -> bool:
    return worker.calls["OpenSession"] >= num_calls


async def _stands_idle(worker: FakeWorker, session_id: str) -> bool:
    return not worker.lanes[session_id].busy


async def test_a_session_leaves_a_worker_that_is_gone(
    stack: Stack, worker: FakeWorker, client: Client, tmp_path: Path
) -> None:
    async with _standing(worker, client):
        session_id = await client.session()
        await client.append(session_id, [1, 2, 3])
    worker.tunnels = [client.address]
    appending = asyncio.create_task(client.append(session_id, [4]))
    other = await stack.worker(client, "worker-b")
    await worker.lapse()
    assert (await appending).history_length == 4
    assert other.lanes[session_id].token_ids == [1, 2, 3, 4]


async def test_a_worker_that_cannot_connect_says_so(worker: FakeWorker, client: Client, monkeypatch: Any) -> None:
    async with _standing(worker, client) as end:
        end.failing = "a firewall"
        opening = asyncio.create_task(client.session())
        await eventually(lambda: _has_heard(end, 2))
        end.failing = ""
        assert await opening


async def _has_heard(end: FarEnd, num_dials: int) -> bool:
    return sum(response.HasField("dial") for response in end.heard) >= num_dials


async def test_a_dial_that_nobody_answers_is_given_up(
    worker: FakeWorker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_tunnel, "_DIAL_SECONDS", 0.05)
    async with _standing(worker, client) as end:
        end.failing = "late"
        end._connect = _nothing  # type: ignore[method-assign]
        opening = asyncio.create_task(client.session())
        await eventually(lambda: _has_heard(end, 2))
        del end._connect
        monkeypatch.setattr(one_tunnel, "_DIAL_SECONDS", 60.0)
        end.failing = ""
        assert await opening


async def _nothing(dial: bytes) -> None:
    """Does not connect."""


async def test_a_worker_that_falls_silent_is_told(
    worker: FakeWorker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _standing(worker, client) as end:
        assert await client.session()
        assert len(end.connections) == 1
        end.beating.clear()
        monkeypatch.setattr(all_tunnels, "SILENCE_SECONDS", 0.2)
        with pytest.raises(DeadlineExceeded):
            await end.ended
        async with asyncio.timeout(60):
            await asyncio.gather(*end.connections)  # which the router has ended


async def test_both_sides_beat(worker: FakeWorker, client: Client) -> None:
    async with _standing(worker, client) as end:
        await eventually(lambda: _has_beats(end))


async def _has_beats(end: FarEnd) -> bool:
    return len([each for each in end.heard if each == pb.TunnelResponse()]) >= 2


async def test_a_router_that_stops_says_so(stack: Stack, worker: FakeWorker, client: Client) -> None:
    async with _standing(worker, client) as end:
        end.beating.clear()  # a message that meets the end would hide it
        await stack.stop_routers()
        with pytest.raises(Draining):
            await end.ended
    assert not await stack.redis.exists("kakeya:tunnel_ports")


async def test_the_worker_may_end_it(stack: Stack, worker: FakeWorker, client: Client) -> None:
    async with _standing(worker, client) as end:
        await end._call.done_writing()
        with pytest.raises(EOFError):
            await end.ended


async def test_who_waits_for_a_connection_hears_of_the_end() -> None:
    ended = Tunnel(Identity(PoolName("tiny"), WorkerId("w"), Incarnation("ab")))
    dialling = asyncio.create_task(ended.dial())
    assert await ended.next_dial(60) is not None
    await ended.end()
    for dial in (dialling, ended.dial()):
        with pytest.raises(NoWay, match="has ended"):
            await dial


async def test_what_comes_as_nobody_wants_it_any_more_is_ended() -> None:
    """Nobody would join it to anything, and it would stand as long as the tunnel."""
    tunnel = Tunnel(Identity(PoolName("tiny"), WorkerId("w"), Incarnation("ab")))
    dialling = asyncio.create_task(tunnel.dial())
    dial = await tunnel.next_dial(60)
    here, there = socket.socketpair()
    with there:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, sock=here)
        assert dial is not None
        assert tunnel.answer(dial, connection)
        dialling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialling
        await asyncio.wait_for(connection.ended, 60)


async def test_the_latest_of_two_is_used(worker: FakeWorker, client: Client) -> None:
    async with _standing(worker, client) as first, _standing(worker, client) as second:
        assert await client.session()
        assert not await _has_heard(first, 1)
        assert await _has_heard(second, 1)


@pytest.mark.parametrize("wrong", [{"incarnation": "0" * 32}, {"worker_id": "worker-b"}, {"pool": "others"}])
async def test_it_is_for_the_incarnation_that_has_joined(
    worker: FakeWorker, client: Client, wrong: dict[str, str]
) -> None:
    with pytest.raises(UnknownIncarnation):
        async with FarEnd(worker, client.registry, **wrong):
            pass


async def test_it_ends_with_its_incarnation(stack: Stack, worker: FakeWorker, client: Client) -> None:
    async with _standing(worker, client) as end:
        end.beating.clear()  # a message that meets the end would hide it
        await answer(client.registry.Leave(worker.leave_request()))
        with pytest.raises(UnknownIncarnation):
            await end.ended


async def test_it_is_not_for_a_worker_with_an_address(stack: Stack, client: Client) -> None:
    dialled = await stack.worker(client)
    with pytest.raises(PermissionDenied, match="with an address"):
        async with FarEnd(dialled, client.registry):
            pass


async def test_it_begins_with_who_it_is(client: Client) -> None:
    async def other() -> AsyncIterator[pb.TunnelRequest]:
        yield pb.TunnelRequest()

    with pytest.raises(InvalidField, match="begin"):
        await answer(client.registry.Tunnel(other()).read())


async def test_a_router_without_a_port_takes_none(stack: Stack, worker: FakeWorker) -> None:
    other = await stack.router()
    with pytest.raises(InvalidField, match="no tunnel port"):
        async with FarEnd(worker, other.registry):
            pass


@pytest.mark.parametrize(
    ("field", "value"),
    [("incarnation", "not hexadecimal"), ("address", "127.0.0.1:1")],
)
async def test_who_joins_with_tunnels_has_no_address(
    worker: FakeWorker, client: Client, field: str, value: str
) -> None:
    request = worker.join_request()
    setattr(request, field, value)
    with pytest.raises(InvalidField, match=field):
        await answer(client.registry.Join(request))


@pytest.mark.parametrize("name", ["no address", f"{'h' * 300}:1"])
async def test_names_of_routers_are_addresses(worker: FakeWorker, client: Client, name: str) -> None:
    worker.tunnels = [name]
    with pytest.raises(InvalidField, match="tunnels"):
        await client.beat(worker)


async def test_it_is_for_the_token_that_has_joined(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_tunnels, "SILENCE_SECONDS", 60.0)  # it is not what ends the tunnel here
    async with keyed_on(redis_url, **PORT) as keyed:
        token, other = await keyed.token(pool="tiny"), await keyed.token(pool="tiny")
        joiner = keyed.client(token.secret)
        worker = await keyed.stack.worker(joiner, socket=tmp_path / "server")
        async with FarEnd(worker, joiner.registry) as end:
            with pytest.raises(PermissionDenied, match="another token"):
                async with FarEnd(worker, keyed.client(other.secret).registry):
                    pass
            with pytest.raises(Unauthenticated):
                async with FarEnd(worker, keyed.nobody.registry):
                    pass
            end.beating.clear()  # a message that meets the end would hide it
            await answer(keyed.admin.admin.RevokeToken(RevokeTokenRequest(token_id=token.token.token_id)))
            with pytest.raises(Unauthenticated):
                await end.ended
