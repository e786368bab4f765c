"""A worker's tunnels, against routers that are scripted on real sockets: two of them, kept, and made anew."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pytest
import structlog

from kakeya_shared.errors.tree import Draining, InvalidField, KakeyaError, UnknownIncarnation
from kakeya_shared.rpc.rpc_boundary import Context
from kakeya_shared.rpc.server import RpcServer
from kakeya_shared.rpc.tls import ContextTls
from kakeya_shared.tunnel.connection import Connection, ConnectionEnded, Connections
from kakeya_stubs.worker.v1 import registry_pb2 as pb
from kakeya_stubs.worker.v1.registry_pb2_grpc import RegistryServiceServicer, add_RegistryServiceServicer_to_server
from kakeya_worker.joining.registration import Registration
from kakeya_worker.joining.router_link import RouterLink
from kakeya_worker.joining.worker_identity import WorkerIdentity
from kakeya_worker.metrics import no_metrics
from kakeya_worker.tunnels import tunnel as one_tunnel
from kakeya_worker.tunnels import tunnels as all_tunnels
from kakeya_worker.tunnels.network import Network
from kakeya_worker.tunnels.tunnels import Tunnels
from tests.certificates import Authority

IDENTITY = WorkerIdentity("w-1", "demo", "Demo", "", num_threads=1)
SECONDS = 60.0


class Router(RegistryServiceServicer):
    """Greets, beats, asks for connections, and ends as the test wants.

    Attributes:
        name: that it goes by.
        began: what came first of each tunnel.
        said: what came after it.
        refusal: what it answers instead of a greeting.
        says: its messages from then on; an error ends the tunnel.
        lines: the first lines that came to its tunnel port.
        is_taking: a connection has come there.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.began: asyncio.Queue[pb.TunnelRequest.Begin] = asyncio.Queue()
        self.said: asyncio.Queue[pb.TunnelRequest] = asyncio.Queue()
        self.refusal: KakeyaError | None = None
        self.greets = True
        self.says: asyncio.Queue[pb.TunnelResponse | KakeyaError | None] = asyncio.Queue()
        self.lines: asyncio.Queue[tuple[str, Connection]] = asyncio.Queue()
        self.is_taking = asyncio.Event()
        self.address = ""
        self.port = ""
        self.tls = False

    async def Tunnel(
        self, requests: AsyncIterator[pb.TunnelRequest], context: Context
    ) -> AsyncIterator[pb.TunnelResponse]:
        if self.refusal is not None:
            raise self.refusal
        self.began.put_nowait((await anext(aiter(requests))).begin)
        if not self.greets:
            yield pb.TunnelResponse()
            return
        yield pb.TunnelResponse(welcome=pb.TunnelResponse.Welcome(router=self.name, address=self.port, tls=self.tls))
        hearing = asyncio.create_task(self._hear(requests))
        try:
            while (message := await self.says.get()) is not None:
                if isinstance(message, KakeyaError):
                    raise message
                yield message
        finally:
            hearing.cancel()

    async def _hear(self, requests: AsyncIterator[pb.TunnelRequest]) -> None:
        async for request in requests:
            self.said.put_nowait(request)

    def take(self, connection: Connection) -> None:
        """At its tunnel port."""
        self.taking = asyncio.create_task(self._read(connection))
        self.is_taking.set()

    async def _read(self, connection: Connection) -> None:
        if self.context is not None:
            await connection.secure(self.context, SECONDS)
        self.lines.put_nowait((await connection.line(), connection))

    context: Any = None


@asynccontextmanager
async def _router(name: str, tls: ContextTls | None = None) -> AsyncIterator[Router]:
    router = Router(name)
    server = RpcServer("127.0.0.1:0", ["kakeya.worker.v1.RegistryService"], grace_seconds=0)
    add_RegistryServiceServicer_to_server(router, server.grpc_server)
    router.context, router.tls = (None, False) if tls is None else (tls.context(), True)
    connections = Connections()

    def come(connection: Connection) -> None:
        if connections.add(connection):
            router.take(connection)

    port = await asyncio.get_running_loop().create_server(
        lambda: Connection(come, is_secured=router.tls), "127.0.0.1", 0
    )
    router.port = f"127.0.0.1:{port.sockets[0].getsockname()[1]}"
    async with server:
        router.address = server.address
        yield router
    port.close()
    await connections.end()


@dataclass
class Registered:
    """What tunnels ask of a registration."""

    routers: list[str]
    incarnation: str = "ab" * 16
    identity: WorkerIdentity = IDENTITY
    joined: asyncio.Event = field(default_factory=asyncio.Event)
    told: "asyncio.Queue[list[str]]" = field(default_factory=asyncio.Queue)
    joins_again: asyncio.Event = field(default_factory=asyncio.Event)

    def tell_tunnels(self, routers: Sequence[str]) -> None:
        self.told.put_nowait(list(routers))

    def join_again(self) -> None:
        self.joins_again.set()

    async def are(self, *names: str) -> None:
        """Waits until the tunnels are those to these routers."""
        async with asyncio.timeout(SECONDS):
            while await self.told.get() != sorted(names):
                pass


class Steady(Network):
    """Changes when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.changing = asyncio.Event()

    async def changed(self) -> str:
        await self.changing.wait()
        self.changing.clear()
        return "this machine has slept"


@asynccontextmanager
async def _running(
    registered: Registered, server: Path = Path("nowhere"), tls: ContextTls | None = None
) -> AsyncIterator[Steady]:
    network = Steady()
    tunnels = Tunnels(cast(Registration, registered), RouterLink(), server, tls, no_metrics(), network)
    task = asyncio.create_task(tunnels.run())
    registered.joined.set()
    try:
        yield network
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries come soon after each other."""
    monkeypatch.setattr(all_tunnels, "_SOON_SECONDS", (0.01, 0.02))
    monkeypatch.setattr(one_tunnel, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(one_tunnel, "SILENCE_SECONDS", SECONDS)


@contextmanager
def _logs() -> Iterator[Callable[[str], bool]]:
    """Whether something has been logged meanwhile."""
    with structlog.testing.capture_logs() as logged:
        yield lambda text: any(text in str(each) for each in logged)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


async def test_it_keeps_two_and_says_to_whom() -> None:
    async with _router("a:1") as a, _router("b:1") as b, _router("c:1") as c:
        registered = Registered([a.address, b.address, c.address])
        async with _running(registered):
            await registered.are("a:1", "b:1")
            begin = await a.began.get()
            assert (begin.pool, begin.worker_id, begin.incarnation) == ("demo", "w-1", registered.incarnation)
            assert (await asyncio.wait_for(a.said.get(), SECONDS)) == pb.TunnelRequest(), "a beat"
            a.says.put_nowait(Draining("the router stops"))
            await registered.are("b:1", "c:1")


async def test_another_stands_in_when_one_ends_and_one_is_enough() -> None:
    async with _router("a:1") as a:
        registered = Registered([a.address])
        with _logs() as has_logged:
            async with _running(registered):
                await registered.are("a:1")
                a.says.put_nowait(None)
                await registered.are()
                await registered.are("a:1")
                assert has_logged("the router has ended it")


async def test_behind_one_address_a_second_to_the_same_router_is_let_go() -> None:
    async with _router("a:1") as a, _router("a:1") as again:
        registered = Registered([a.address, again.address])
        with _logs() as has_logged:
            async with _running(registered):
                await registered.are("a:1")
                await _until(lambda: has_logged("stands already"))


async def test_silence_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _router("a:1") as a:
        registered = Registered([a.address])
        with _logs() as has_logged:
            async with _running(registered):
                await registered.are("a:1")
                monkeypatch.setattr(one_tunnel, "SILENCE_SECONDS", 0.05)
                a.says.put_nowait(pb.TunnelResponse())
                await registered.are()
                await _until(lambda: has_logged("nothing was heard of the router for 0.05 s"))


async def test_a_router_that_takes_nothing_any_more_ends_it() -> None:
    async def read() -> pb.TunnelResponse:
        await asyncio.sleep(0)
        return pb.TunnelResponse(welcome=pb.TunnelResponse.Welcome(router="a:1"))

    call = SimpleNamespace(read=read, write=AsyncMock(side_effect=[None, asyncio.InvalidStateError]), cancel=Mock())
    registry = cast(Any, SimpleNamespace(Tunnel=lambda metadata: call))
    async with one_tunnel.Tunnel(registry, (), Path("nowhere"), None) as tunnel:
        await tunnel.begin(pb.TunnelRequest.Begin())
        with pytest.raises(one_tunnel.TunnelEnded, match="does not take"):
            await asyncio.wait_for(tunnel.hold(lambda: True), SECONDS)


async def test_a_router_that_is_no_router(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _router("a:1") as a:
        a.greets = False
        registered = Registered(["127.0.0.1:9", a.address])
        with _logs() as has_logged:
            async with _running(registered):
                await _until(lambda: has_logged("does not greet") and has_logged("UNAVAILABLE"))


@pytest.mark.parametrize("error", [UnknownIncarnation("lost"), InvalidField("no tunnel port")])
async def test_it_joins_again_where_it_is_not_known(error: KakeyaError) -> None:
    async with _router("a:1") as a:
        a.refusal = error
        registered = Registered([a.address])
        with _logs() as has_logged:
            async with _running(registered):
                await _until(lambda: has_logged(error.message))
                assert registered.joins_again.is_set() == isinstance(error, UnknownIncarnation)
                a.refusal = None
                await registered.are("a:1")


async def test_tunnels_of_an_incarnation_end_with_it() -> None:
    async with _router("a:1") as a:
        registered = Registered([a.address])
        async with _running(registered):
            await registered.are("a:1")
            registered.incarnation = "cd" * 16
            a.says.put_nowait(pb.TunnelResponse())
            await registered.are()
            await registered.are("a:1")
            assert (await a.began.get()).incarnation == "ab" * 16
            assert (await a.began.get()).incarnation == "cd" * 16


async def test_a_change_of_the_network_makes_all_anew_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _router("a:1") as a, _router("b:1") as b:
        registered = Registered([a.address, b.address])
        async with _running(registered) as network:
            await registered.are("a:1", "b:1")
            monkeypatch.setattr(all_tunnels, "_SOON_SECONDS", (SECONDS, SECONDS))
            monkeypatch.setattr(all_tunnels, "_SOON_FOR_SECONDS", 0.0)
            monkeypatch.setattr(all_tunnels, "_LATER_SECONDS", (2 * SECONDS, 2 * SECONDS))
            network.changing.set()
            await registered.are()
            await registered.are("a:1", "b:1")


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"server: " + await reader.readline())
    writer.close()


@pytest.mark.parametrize("is_secured", [False, True])
async def test_a_connection_is_made_when_it_is_asked_for(tmp_path: Path, *, is_secured: bool) -> None:
    authority = Authority(tmp_path)
    pair = authority.pair("router")
    of_router = ContextTls.of_server(pair.cert, pair.key, None) if is_secured else None
    of_worker = ContextTls.of_client(authority.path, None, None)
    server = await asyncio.start_unix_server(_echo, tmp_path / "server")
    async with _router("a:1", of_router) as a:
        registered = Registered([a.address])
        async with _running(registered, tmp_path / "server", of_worker):
            await registered.are("a:1")
            a.says.put_nowait(pb.TunnelResponse(dial=pb.TunnelResponse.Dial(dial=b"\x0a\xbc")))
            line, outer = await asyncio.wait_for(a.lines.get(), SECONDS)
            assert line == "KAKEYA-TUNNEL/1 dial a:1 0abc"
            outer.write(b"client\n")
            assert await asyncio.wait_for(outer.line(), SECONDS) == "server: client"
    server.close()


async def test_connections_end_with_their_tunnel(tmp_path: Path) -> None:
    server = await asyncio.start_unix_server(_echo, tmp_path / "server")
    async with _router("a:1") as a:
        registered = Registered([a.address])
        async with _running(registered, tmp_path / "server"):
            await registered.are("a:1")
            a.says.put_nowait(pb.TunnelResponse(dial=pb.TunnelResponse.Dial(dial=b"\1")))
            _, outer = await asyncio.wait_for(a.lines.get(), SECONDS)
            a.says.put_nowait(None)
            await asyncio.wait_for(outer.ended, SECONDS)
    server.close()


async def test_a_port_that_cannot_be_reached_is_told(tmp_path: Path) -> None:
    async with _router("a:1") as a:
        a.port = "127.0.0.1:9"
        registered = Registered([a.address])
        async with _running(registered, tmp_path / "server"):
            await registered.are("a:1")
            a.says.put_nowait(pb.TunnelResponse(dial=pb.TunnelResponse.Dial(dial=b"\1")))
            async with asyncio.timeout(SECONDS):
                while not (request := await a.said.get()).HasField("failed"):
                    pass
            assert request.failed.dial == b"\1"
            assert "127.0.0.1:9" in request.failed.why


async def test_a_server_that_is_not_there_leaves_no_connection_to_the_port(tmp_path: Path) -> None:
    async with _router("a:1") as a:
        registered = Registered([a.address])
        async with _running(registered, tmp_path / "nothing"):
            await registered.are("a:1")
            a.says.put_nowait(pb.TunnelResponse(dial=pb.TunnelResponse.Dial(dial=b"\1")))
            async with asyncio.timeout(SECONDS):
                while not (await a.said.get()).HasField("failed"):
                    pass
                await a.is_taking.wait()
                with pytest.raises(ConnectionEnded):
                    await a.taking
