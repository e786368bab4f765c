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


async def _num_unread(runtime: Endless, num_read: int) -> int:
    while runtime.num_sent < num_read + 32:  # so many are sent on a busy machine, too
        await asyncio.sleep(0.01)
    num_sent = -1
    while num_sent != runtime.num_sent:
        num_sent = runtime.num_sent
        await asyncio.sleep(_SETTLED_SECONDS)
    return num_sent - num_read


@pytest.fixture
async def served() -> AsyncIterator[tuple[str, Endless]]:
    runtime, server = Endless(), grpc.aio.server()
    add_RuntimeServiceServicer_to_server(runtime, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}", runtime
    await server.stop(0)


async def test_an_unread_stream_takes_in_64_tokens_at_most(served: tuple[str, Endless]) -> None:
    address, runtime = served
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        call: Any = RuntimeServiceStub(channel).Generate(pb.GenerateRequest())
        await call.read()
        assert 32 <= await _num_unread(runtime, 1) <= 64
        for _ in range(1000):  # what was read before does not widen it, as gRPC's own measure would, to thousands
            await call.read()
        # A read that waits, as each does on a busy machine, lets in more for itself: 74 and 87 were seen.
        assert await _num_unread(runtime, 1001) <= 128
        call.cancel()


async def test_the_same_of_a_blocking_client(served: tuple[str, Endless]) -> None:
    address, runtime = served
    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        call: Any = RuntimeServiceStub(channel).Generate(pb.GenerateRequest())
        await asyncio.to_thread(next, call)
        assert 32 <= await _num_unread(runtime, 1) <= 64
        call.cancel()
