"""Clients that vanish at every point of a request leave nothing: no task, no place, no connection."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from kakeya_http_shim.metrics import CountRequests, Metrics
from kakeya_http_shim.middleware.body_limit import BodyLimit
from kakeya_http_shim.middleware.host_check import HostCheck
from kakeya_http_shim.middleware.key_check import KeyCheck
from kakeya_http_shim.middleware.request_ids import RequestIds
from kakeya_http_shim.routes.admission import Admission
from tests.unit.http_shim.served import RawClient, eventually, read_body, served

REQUEST = (
    b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
)


class Whole:
    """All that a request passes, and an app that streams until its client leaves."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.admission = Admission("queue", 3, 1000, 30.0, self.metrics)
        self.limit = BodyLimit(self._stream, 1000, 100_000, 30.0)
        keyed = KeyCheck(self.limit, self._check)
        hosted = HostCheck(keyed, frozenset({"localhost"}))
        self.app: ASGIApp = RequestIds(CountRequests(hosted, self.metrics))
        self.num_streams = 0

    async def _check(self, key: str) -> None:
        await asyncio.sleep(0.001)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await read_body(receive)
        except ConnectionError:
            return
        work = asyncio.create_task(self._work(send))
        gone = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    async def _work(self, send: Send) -> None:
        async with self.admission.place():
            self.num_streams += 1
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})
                await asyncio.sleep(0.001)

    async def emptied(self) -> None:
        """Returns when nothing is left; fails after 5 s."""
        await eventually(lambda: self.limit.num_held_bytes == 0)
        await eventually(lambda: (self.admission.num_in_flight, self.admission.num_waiting) == (0, 0))
        await eventually(lambda: len(asyncio.all_tasks()) == 1)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def vanish(client: RawClient, *, politely: bool) -> None:
    if not politely:
        linger = b"\1\0\0\0\0\0\0\0"  # a reset in place of a goodbye
        client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        client.writer.transport.abort()
    await client.leave()


@asynccontextmanager
async def serving_whole() -> AsyncIterator[tuple[Whole, tuple[str, int]]]:
    whole = Whole()
    async with served(whole.app) as address:
        yield whole, address
        await whole.emptied()


@pytest.mark.parametrize("politely", [True, False])
async def test_after_each_byte_of_the_request(politely: bool) -> None:
    async with serving_whole() as (whole, address):
        for length in range(len(REQUEST) + 1):
            client = RawClient(*await asyncio.open_connection(*address))
            await client.send(REQUEST[:length])
            if length < len(REQUEST):
                await asyncio.sleep(0.002 if length % 3 else 0)
            else:
                await eventually(lambda: whole.num_streams >= 1)
            await vanish(client, politely=politely)


@pytest.mark.parametrize("politely", [True, False])
async def test_while_waiting_for_a_place_or_within_the_answer(politely: bool) -> None:
    async with serving_whole() as (whole, address):
        clients = [RawClient(*await asyncio.open_connection(*address)) for _ in range(30)]
        for client in clients:
            await client.send(REQUEST)
        await eventually(lambda: (whole.admission.num_in_flight, whole.admission.num_waiting) == (3, 27))
        for client in clients[1::2] + clients[::2]:
            await vanish(client, politely=politely)
            await asyncio.sleep(0.001)
        await whole.emptied()


async def test_all_at_once() -> None:
    async with serving_whole() as (whole, address):
        clients = [RawClient(*await asyncio.open_connection(*address)) for _ in range(60)]
        for number, client in enumerate(clients):
            await client.send(REQUEST[: len(REQUEST) - number % 30])
        await asyncio.sleep(0.02)
        await asyncio.gather(*(vanish(client, politely=bool(number % 2)) for number, client in enumerate(clients)))
        await whole.emptied()


async def test_the_server_ends_while_they_wait() -> None:
    whole = Whole()
    async with served(whole.app) as address:
        clients = [RawClient(*await asyncio.open_connection(*address)) for _ in range(30)]
        for number, client in enumerate(clients):
            await client.send(REQUEST[: len(REQUEST) - number % 10 * 5])
        await eventually(lambda: whole.admission.num_in_flight == 3)
    await whole.emptied()
    for client in clients:
        await client.leave()
