"""A stream that nobody reads: how many tokens the client takes in before its runtime must wait."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from kakeya._transport._channel import OPTIONS
from kakeya_stubs.v1 import runtime_pb2 as pb
from kakeya_stubs.v1.runtime_pb2_grpc import (
    RuntimeServiceServicer,
    RuntimeServiceStub,
    add_RuntimeServiceServicer_to_server,
)


class Endless(RuntimeServiceServicer):
    """Generates as long as somebody takes it; `num_sent` counts."""

    num_sent = 0

    async def Generate(self, request: pb.GenerateRequest, context: object) -> AsyncIterator[pb.GenerateResponse]:
        while True:
            yield pb.GenerateResponse(token_id=100_000)
            self.num_sent += 1
            await asyncio.sleep(0)


_SETTLED_SECONDS = 0.5  # in which a sender that may send does send
_PING_SECONDS = 0.5
_PINGS = ("grpc.keepalive_time_ms", round(_PING_SECONDS * 1000))
_TAKES_PINGS = [("grpc.http2.max_ping_strikes", 0), ("grpc.http2.min_ping_interval_without_data_ms", 100)]
_WINDOW = 27  # tokens of this runtime, of 9 bytes each, in what the options allow


async def _num_unread(runtime: Endless, num_read: int, *, at_least: int, seconds: float) -> int:
    """Once so many are there, and no more have come for so long."""
    while runtime.num_sent < num_read + at_least:
        await asyncio.sleep(0.01)
    num_sent = -1
    while num_sent != runtime.num_sent:
        num_sent = runtime.num_sent
        await asyncio.sleep(seconds)
    return num_sent - num_read


@pytest.fixture
async def served() -> AsyncIterator[tuple[str, Endless]]:
    runtime, server = Endless(), grpc.aio.server(options=_TAKES_PINGS)
    add_RuntimeServiceServicer_to_server(runtime, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}", runtime
    await server.stop(0)


async def test_an_unread_stream_takes_in_64_tokens_at_most(served: tuple[str, Endless]) -> None:
    """What was read before does not widen it, but for what a ping takes along: gRPC has a second window ready where a
    read has waited, which not each does, and tells of it with whatever it sends next.
    """
    address, runtime = served
    options = [each for each in OPTIONS if each[0] != _PINGS[0]] + [_PINGS]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        call: Any = RuntimeServiceStub(channel).Generate(pb.GenerateRequest())
        await call.read()
        assert await _num_unread(runtime, 1, at_least=_WINDOW // 2, seconds=_SETTLED_SECONDS) <= 64
        for _ in range(1000):
            await call.read()
        assert await _num_unread(runtime, 1001, at_least=_WINDOW // 2, seconds=4 * _PING_SECONDS) <= 64
        call.cancel()


async def test_the_same_of_a_blocking_client(served: tuple[str, Endless]) -> None:
    address, runtime = served
    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        call: Any = RuntimeServiceStub(channel).Generate(pb.GenerateRequest())
        await asyncio.to_thread(next, call)
        unread = await _num_unread(runtime, 1, at_least=_WINDOW // 2, seconds=_SETTLED_SECONDS)
        assert _WINDOW // 2 <= unread <= 64
        call.cancel()
