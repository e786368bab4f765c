"""The ways to a worker behind a tunnel, over real sockets: through other routers. And what else comes to the port."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
import structlog

from kakeya_router.program import Router
from kakeya_router.settings import RouterSettings
from kakeya_router.store.session_record import Incarnation
from kakeya_router.tunnels import tunnel, tunnel_port, ways
from kakeya_router.tunnels.doors import Doors
from kakeya_router.tunnels.tunnel import NoWay
from kakeya_shared.errors.tree import StoreUnavailable
from kakeya_shared.process.service_process import StartError
from kakeya_shared.settings.addresses import HostPort
from tests.certificates import Authority, Pair
from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.stack import FAST, Client, Stack, eventually
from tests.unit.router.tunnels.far_end import FarEnd

PORT = {"tunnel_bind": "127.0.0.1:0"}
SECONDS = 60.0


@pytest.fixture
async def client(stack: Stack) -> Client:
    return await stack.router(**PORT)


@pytest.fixture
async def worker(stack: Stack, client: Client, tmp_path: Path) -> FakeWorker:
    return await stack.worker(client, socket=tmp_path / "server")


@asynccontextmanager
async def _standing(worker: FakeWorker, client: Client, other: Client) -> AsyncIterator[FarEnd]:
    """A tunnel that the other router knows."""
    async with FarEnd(worker, client.registry) as end:
        await eventually(lambda: _is_known(other, end))
        yield end


async def _is_known(client: Client, end: FarEnd) -> bool:
    return any(end.welcome.router in worker.tunnels for worker in (await client.workers()).values())


async def _says(port: str, line: bytes) -> bytes:
    """What the port says to a first line before it closes the connection."""
    reader, writer = await asyncio.open_connection(*HostPort.parse(port))
    try:
        writer.write(line)
        return await asyncio.wait_for(reader.read(), SECONDS)
    finally:
        writer.close()
        await writer.wait_closed()


def _reasons(logged: list[Any]) -> set[str]:
    return {why for each in logged if "refused" in each["event"] for why in each.get("reasons", ())}


async def test_a_router_without_a_port_comes_through_another(stack: Stack, worker: FakeWorker, client: Client) -> None:
    other = await stack.router()
    async with _standing(worker, client, other):
        session_id = await other.session()
        assert (await other.append(session_id, [1, 2, 3])).history_length == 3
        assert await client.close(session_id) == 3


async def test_one_that_is_dead_is_passed_over(stack: Stack, worker: FakeWorker, client: Client) -> None:
    other = await stack.router()
    async with _standing(worker, client, other) as end:
        await stack.redis.hset("kakeya:tunnel_ports", "dead:1", "127.0.0.1:9")
        worker.tunnels = ["unknown:1", "dead:1", end.welcome.router]
        await eventually(lambda: _sees_three(stack.routers[1]))
        assert await other.session()


async def _sees_three(router: Router) -> bool:
    return any(len(worker.tunnel_routers) == 3 for worker in router._parts.base.fleet.workers())


async def test_a_door_to_a_worker_that_is_gone_is_closed() -> None:
    doors = Doors(AsyncMock(side_effect=NoWay("the worker is gone")))
    reader, writer = await asyncio.open_unix_connection(doors.path(Incarnation("ab")))
    assert await asyncio.wait_for(reader.read(), SECONDS) == b""
    writer.close()
    await doors.aclose()


@pytest.mark.parametrize("turns", range(5))
async def test_who_comes_to_a_door_that_closes_is_turned_away(turns: int) -> None:
    doors = Doors(AsyncMock(side_effect=asyncio.Event().wait))  # which has no end
    path = doors.path(Incarnation("ab"))
    _, first = await asyncio.open_unix_connection(path)  # so that the door is listened at
    with socket.socket(socket.AF_UNIX) as visitor:
        visitor.connect(str(path))
        await _turn(turns)
        await doors.aclose()
        await _is_turned_away(visitor)
    first.close()


@pytest.mark.parametrize("turns", range(5))
async def test_who_comes_to_a_port_that_closes_is_turned_away(stack: Stack, client: Client, turns: int) -> None:
    router = stack.routers[0]
    with socket.create_connection(HostPort.parse(router._tunnel_address)) as visitor:
        await _turn(turns)
        await router._parts.base.tunnel_port.close()
        await _is_turned_away(visitor)


async def _turn(number: int) -> None:
    """As often as the loop turns, the accepting of a connection goes one step on."""
    for _ in range(number):
        await asyncio.sleep(0)


async def _is_turned_away(visitor: socket.socket) -> None:
    visitor.setblocking(False)
    with suppress(ConnectionResetError):
        assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(visitor, 1), SECONDS) == b""


async def test_the_other_router_may_have_lost_its_tunnel(stack: Stack, worker: FakeWorker, client: Client) -> None:
    """It says so, and the way is found once the tunnel is back."""
    other = await stack.router()
    async with _standing(worker, client, other):
        pass
    worker.tunnels = [client.address]
    opening = asyncio.create_task(other.session())
    with structlog.testing.capture_logs() as logged:
        await eventually(lambda: _has_logged(logged, "no tunnel of the worker ends here"))
    async with FarEnd(worker, client.registry):
        assert await opening


async def test_who_leaves_while_another_router_dials_leaves_nothing(
    stack: Stack, worker: FakeWorker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ways, "_CONNECT_SECONDS", 10 * SECONDS)
    monkeypatch.setattr(tunnel, "_DIAL_SECONDS", 10 * SECONDS)
    other = await stack.router()
    async with _standing(worker, client, other) as end:
        end.failing = "nothing is said"
        end._connect = AsyncMock()  # type: ignore[method-assign]
        port = stack.routers[0]._parts.base.tunnel_port
        dialling = asyncio.create_task(stack.routers[1]._parts.base.ways.dial(Incarnation(worker.incarnation)))
        await eventually(lambda: _has_come(end))
        assert len(port._connections._standing) == 1
        dialling.cancel()
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*(connection.ended for connection in port._connections._standing))


async def _has_come(end: FarEnd) -> bool:
    return bool(end._connect.call_count)  # type: ignore[attr-defined]


async def _has_logged(logged: list[Any], text: str) -> bool:
    return any(text in str(each.get("reason", "")) for each in logged)


async def test_a_dial_that_comes_to_another_router_is_passed_on(
    stack: Stack, worker: FakeWorker, client: Client
) -> None:
    other = await stack.router(**PORT)
    async with _standing(worker, client, client) as end:
        end.welcome.address = stack.routers[1]._tunnel_address  # as behind one address for all
        assert await client.session()
    assert other.address != client.address


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", "this is not the first line"),
        (b"\xff\xfe\n", "no text"),
        (b"K" * 600, "too long"),
        (b"KAKEYA-TUNNEL/1 dial ROUTER abcdef\n", "nobody asked"),
        (b"KAKEYA-TUNNEL/1 dial ROUTER abc\n", "non-hexadecimal"),
        (b"KAKEYA-TUNNEL/1 dial 127.0.0.1:9 abcdef\n", "no tunnel port"),
        (b"KAKEYA-TUNNEL/1 through ROUTER abcdef guessed\n", "no router of this runtime"),
        (b"KAKEYA-TUNNEL/1 through ROUTER abcdef\n", "this is not the first line"),
    ],
)
async def test_what_comes_besides_is_refused_and_counted(
    stack: Stack, client: Client, line: bytes, reason: str
) -> None:
    port = stack.routers[0]._tunnel_address
    with structlog.testing.capture_logs() as logged:
        answer = await _says(port, line.replace(b"ROUTER", client.address.encode()))
        assert answer == b"" or reason.encode() in answer
    assert any(reason in why for why in _reasons(logged))


async def test_a_guest_that_says_nothing_goes(stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel_port, "_OPENING_SECONDS", 0.05)
    with structlog.testing.capture_logs() as logged:
        assert await _says(stack.routers[0]._tunnel_address, b"KAKEYA") == b""
    assert "nothing for 0.05 s" in _reasons(logged)


async def test_of_too_many_strangers_the_oldest_goes(
    stack: Stack, worker: FakeWorker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel_port, "_MAX_STRANGERS", 4)
    port = HostPort.parse(stack.routers[0]._tunnel_address)
    guests = [await asyncio.open_connection(*port) for _ in range(4)]
    async with _standing(worker, client, client):
        assert await client.session()
        assert await asyncio.wait_for(guests[0][0].read(), SECONDS) == b""
    for _, writer in guests:
        writer.close()


async def test_its_log_tells_of_many_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    refusals = tunnel_port._Refusals(lambda: now[0])
    with structlog.testing.capture_logs() as logged:
        for _ in range(100):
            refusals.count("why", "10.0.0.1:1")
        now[0] = 61.0
        refusals.count("why", "10.0.0.1:2")
    assert [each["reasons"] for each in logged] == [{"why": 1}, {"why": 100}]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def _secured(pair: Pair) -> dict[str, Any]:
    return {**PORT, "tls_cert": pair.cert, "tls_key": pair.key}


async def test_with_a_certificate_the_port_speaks_tls(stack: Stack, authority: Authority) -> None:
    await stack.router(**_secured(authority.pair("router")))
    host, port = HostPort.parse(stack.routers[0]._tunnel_address)
    with structlog.testing.capture_logs() as logged:
        assert await _says(stack.routers[0]._tunnel_address, b"KAKEYA-TUNNEL/1 dial a b\n") == b""
        context = ssl.create_default_context(cafile=str(authority.path))
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
        writer.write(b"GET / HTTP/1.1\r\n")
        assert await asyncio.wait_for(reader.read(), SECONDS) == b""
        writer.close()
        await eventually(lambda: _all_refused(logged))


async def _all_refused(logged: list[Any]) -> bool:
    return any("no TLS" in why for why in _reasons(logged))


async def test_routers_show_each_other_certificates(
    stack: Stack, worker: FakeWorker, client: Client, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a router that trusts no tunnel port there is no way through one with TLS."""
    pair = authority.pair("router")
    await stack.router(**_secured(pair))
    port = stack.routers[1]._tunnel_address
    await stack.router(tunnel_ca=authority.path)
    for router, why in ((stack.routers[2], "no tunnel of the worker"), (stack.routers[0], "before its first line")):
        ways = router._parts.base.ways
        monkeypatch.setattr(ways._store, "port", AsyncMock(return_value=port))
        with pytest.raises(NoWay, match=why):
            await ways._through("router:1", Incarnation(worker.incarnation))
    monkeypatch.setattr(ways._store, "port", AsyncMock(return_value="127.0.0.1:9"))
    with pytest.raises(NoWay, match=r"cannot be reached at 127\.0\.0\.1:9"):
        await ways.connect("router:1")


async def test_while_redis_is_away_nobody_is_gone(
    stack: Stack, worker: FakeWorker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = stack.routers[0]._parts.base.ways
    looks = AsyncMock(side_effect=[StoreUnavailable("away"), StoreUnavailable("away"), None, None])
    monkeypatch.setattr(ways, "_look", looks)
    with pytest.raises(NoWay, match="the worker is gone"):
        await asyncio.wait_for(ways.dial(Incarnation(worker.incarnation)), SECONDS)
    assert looks.await_count == 4


async def test_a_port_that_is_taken_ends_the_start(stack: Stack, client: Client) -> None:
    taken = RouterSettings(**(FAST | {"redis": stack.url, "tunnel_bind": stack.routers[0]._tunnel_address}))
    with pytest.raises(StartError, match="tunnel-bind"):
        async with Router(taken):
            pass


def test_beyond_loopback_it_takes_tls() -> None:
    with pytest.raises(ValueError, match="tunnel-bind"):
        RouterSettings(tunnel_bind="0.0.0.0:50053")
    assert RouterSettings(tunnel_bind="0.0.0.0:50053", insecure=True).tunnel_bind == "0.0.0.0:50053"


async def test_it_is_told_under_the_name_of_this_host(stack: Stack) -> None:
    await stack.router(tunnel_bind="0.0.0.0:0", insecure=True)
    assert stack.routers[0]._tunnel_address.startswith("127.0.0.1:")
    await stack.router(tunnel_bind="0.0.0.0:0", insecure=True, tunnel_advertise="tunnel.example.org:443")
    assert stack.routers[1]._tunnel_address == "tunnel.example.org:443"
