"""Calls are counted by method and by how they end."""

import asyncio
from collections.abc import Mapping

import grpc
import pytest

from kakeya_shared.errors.tree import Unauthenticated
from kakeya_shared.metrics.meters import Meters
from kakeya_shared.rpc.call_meters import CallMeters
from kakeya_shared.rpc.server import RpcServer
from kakeya_shared.rpc.tracing import Metadata
from kakeya_stubs.v1 import runtime_pb2 as pb
from kakeya_stubs.v1.runtime_pb2_grpc import RuntimeServiceStub, add_RuntimeServiceServicer_to_server
from tests.scrape import Exposition
from tests.unit.shared.toy_service import SERVICE, Toy

CLOSE, GENERATE = f"{SERVICE}/CloseSession", f"{SERVICE}/Generate"


async def guard(method: str, metadata: Metadata) -> Mapping[str, str]:
    if ("stranger", "1") in metadata:
        raise Unauthenticated("who are you?")
    return {}


async def ended(call: "grpc.aio.UnaryUnaryCall[pb.CloseSessionRequest, pb.CloseSessionResponse]") -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await call


async def test_each_way_to_end_has_its_reason() -> None:
    meters, toy = Meters(), Toy()
    server = RpcServer("127.0.0.1:0", [SERVICE], grace_seconds=0, guard=guard, meters=CallMeters(meters, "toy"))
    add_RuntimeServiceServicer_to_server(toy, server.grpc_server)
    async with server, grpc.aio.insecure_channel(server.address) as channel:
        stub = RuntimeServiceStub(channel)
        await stub.CloseSession(pb.CloseSessionRequest(session_id="well"))
        for session_id in ("full", "full", "broken", "abort"):
            await ended(stub.CloseSession(pb.CloseSessionRequest(session_id=session_id)))
        await ended(stub.CloseSession(pb.CloseSessionRequest(), metadata=(("stranger", "1"),)))
        slow = stub.CloseSession(pb.CloseSessionRequest(session_id="slow"))
        while toy.sleeping is None:
            await asyncio.sleep(0.01)
        slow.cancel()
        assert [answer.token_id async for answer in stub.Generate(pb.GenerateRequest(max_tokens=3))] == [0, 1, 2]

        def counts() -> dict[tuple[str, str], float]:
            family = Exposition.of(meters.exposition()[0].decode()).families["toy_calls"]
            return {(each.labels["method"], each.labels["reason"]): each.value for each in family.samples}

        async with asyncio.timeout(60):
            while sum(counts().values()) < 8:
                await asyncio.sleep(0.01)
    assert counts() == {
        (CLOSE, "OK"): 1,
        (CLOSE, "NO_CAPACITY"): 2,
        (CLOSE, "INTERNAL"): 1,
        (CLOSE, "CANCELLED"): 2,  # by the client, and by the service's own hand, which none of ours lifts
        (CLOSE, "UNAUTHENTICATED"): 1,
        (GENERATE, "OK"): 1,
    }
    seen = Exposition.of(meters.exposition()[0].decode())
    assert seen.value("toy_call_seconds_count", method=CLOSE) == 7
    assert seen.value("toy_call_seconds_sum", method=GENERATE) >= 0.003
