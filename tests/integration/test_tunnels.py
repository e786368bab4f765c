"""Workers that nobody can dial: conversations through their tunnels, over links that break and fall silent."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

import kakeya
from kakeya_shared.settings.addresses import HostPort
from tests.integration.processes import Runtime, eventually, runtime, wait_until
from tests.integration.tunnelled import Behind, behind

NUM_TOKENS = 120
NUM_FLOODED = 10_000


@pytest.fixture
async def tunnelled(model: Path, tmp_path: Path) -> AsyncIterator[Behind]:
    """Two routers over links, and a worker with a tunnel to each."""
    with runtime(model, tmp_path, num_workers=0) as made:
        made.routers.pop().terminate()
        async with behind(made) as far:
            for _ in range(2):
                await far.start_router()
            far.start_worker("far")
            await asyncio.to_thread(made.wait_for_workers, 1)
            await far.wait_for_tunnels(2)
            yield far


async def _answer(client: kakeya.AsyncClient, on_token: Callable[[int], Awaitable[None]] | None = None) -> list[int]:
    """Of a session of its own, which is closed."""
    async with await client.create_session(wait_for_capacity_seconds=60) as session:
        await session.append(range(10, 40))
        tokens = []
        async with session.generate(max_tokens=NUM_TOKENS) as generation:
            async for token in generation:
                tokens.append(token)
                if on_token is not None:
                    await on_token(len(tokens))
        return tokens


@pytest.fixture
async def client(tunnelled: Behind) -> AsyncIterator[kakeya.AsyncClient]:
    async with kakeya.AsyncClient(tunnelled.made.address) as client:
        yield client


async def test_it_is_reached_and_listens_nowhere(tunnelled: Behind, client: kakeya.AsyncClient) -> None:
    assert len(await _answer(client)) == NUM_TOKENS
    worker = tunnelled.made.workers[0]
    listening = [
        each.laddr.port
        for each in psutil.Process(worker.process.pid).net_connections("inet")
        if each.status == psutil.CONN_LISTEN
    ]
    assert listening == [HostPort.parse(worker.metrics).port]


async def test_a_router_without_a_tunnel_comes_through_others(tunnelled: Behind, client: kakeya.AsyncClient) -> None:
    made = tunnelled.made
    expected = await _answer(client)
    third = await asyncio.to_thread(made.start_router, "--tunnel-bind=none")
    async with kakeya.AsyncClient(third.address) as other:
        assert await _answer(other) == expected
        await client.close()
        made.routers[0].kill()
        assert await _answer(other) == expected
    made.routers[:] = [third, made.routers[1]]


@pytest.mark.parametrize("fault", ["cut", "silence"])
async def test_a_gap_is_not_a_death(tunnelled: Behind, client: kakeya.AsyncClient, fault: str) -> None:
    expected = await _answer(client)
    mended = []

    async def mend() -> None:
        await asyncio.sleep(5)  # beyond the silence that ends a tunnel
        tunnelled.mend()

    async def break_off(num_tokens: int) -> None:
        if num_tokens == 10:
            getattr(tunnelled, fault)()
            mended.append(asyncio.create_task(mend()))

    assert await _answer(client, break_off) == expected
    await mended[0]
    log = tunnelled.made.routers[0].log.read_text()
    assert "a tunnel has ended" in log
    assert "session resumed" not in log, "the lane that it had has served it on"


async def test_beyond_its_lease_the_session_goes_on_elsewhere(tunnelled: Behind, client: kakeya.AsyncClient) -> None:
    expected = await _answer(client)
    made = tunnelled.made

    async def lose(num_tokens: int) -> None:
        if num_tokens == 10:
            tunnelled.cut()
            made.start_worker("--worker-id", "near")
            await asyncio.to_thread(made.wait_for_workers, 2)
            made.lapse(made.workers[0])

    assert await _answer(client, lose) == expected
    tunnelled.mend()

    async def is_back() -> bool:
        return {worker.worker_id for worker in await asyncio.to_thread(made.list_workers)} == {"far", "near"}

    await eventually(is_back, "the worker has joined anew")


async def test_tunnels_follow_the_routers(tunnelled: Behind, client: kakeya.AsyncClient) -> None:
    """A router that stops is replaced by another one, and nothing is left of it."""
    made = tunnelled.made
    assert await asyncio.to_thread(made.routers[1].terminate) == 0
    made.routers.pop()
    await tunnelled.start_router()
    new = tunnelled.calls[-1].address
    await asyncio.to_thread(wait_until, lambda: new in _ended_at(made), "the worker has a tunnel to the new router")
    assert len(await _answer(client)) == NUM_TOKENS


def _ended_at(made: Runtime) -> set[str]:
    """The routers that the worker's tunnels end at."""
    return {router for worker in made.list_workers() for router in worker.tunnels}


_AT_ONCE = 200
_SAID = (
    b"",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    b"KAKEYA-TUNNEL/1 dial ",
    bytes(4096),
    b"\n",
)


def _hear_of_its_end(connection: socket.socket) -> None:
    """Also where the other side never had it: connections beyond its backlog look as if they stood."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)


@pytest.mark.heavy
async def test_a_port_that_is_flooded_serves_on_and_keeps_nothing(
    tunnelled: Behind, client: kakeya.AsyncClient
) -> None:
    """Scanned, fed garbage, opened and left."""
    expected = await _answer(client)
    router = tunnelled.made.routers[0]
    watched = psutil.Process(router.process.pid)
    host, port = HostPort.parse(tunnelled.tunnel_ports[0])
    gate = asyncio.Semaphore(_AT_ONCE)

    async def flood(number: int) -> None:
        async with gate:
            reader, writer = await asyncio.open_connection(host, port)
            _hear_of_its_end(writer.get_extra_info("socket"))
            writer.write(_SAID[number % len(_SAID)])
            if number % 31:  # of each kind some wait to be told
                writer.close()
            else:
                with suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()

    num_fds, rss = watched.num_fds(), watched.memory_info().rss
    flooding = [asyncio.create_task(flood(number)) for number in range(NUM_FLOODED)]
    assert await _answer(client) == expected
    await asyncio.gather(*flooding)

    async def is_as_before() -> bool:
        return watched.num_fds() <= num_fds + 8

    await eventually(is_as_before, "all connections are gone")
    assert watched.memory_info().rss < rss + (64 << 20)
    refusals = [line for line in router.log.read_text().splitlines() if "tunnel port were refused" in line]
    assert 1 <= len(refusals) <= 10
    assert await _answer(client) == expected
