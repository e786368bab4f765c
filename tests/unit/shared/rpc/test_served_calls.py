"""Calls are counted by method and by how they end, and each has one line in the log."""

import asyncio
from collections.abc import Mapping

import grpc
import pytest
import structlog

from kakeya_shared.errors.tree import Unauthenticated
from kakeya_shared.metrics.meters import Meters
from kakeya_shared.rpc.served_calls import CallMeters, tell
from kakeya_shared.rpc.server import RpcServer
from kakeya_shared.rpc.tracing import Metadata
from kakeya_stubs.v1 import runtime_pb2 as pb
from kakeya_stubs.v1.runtime_pb2_grpc import RuntimeServiceStub, add_RuntimeServiceServicer_to_server
from tests.scrape import Exposition
from tests.unit.shared.toy_service import SERVICE, Toy, serving

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


async def test_each_call_has_one_line() -> None:
    with structlog.testing.capture_logs() as lines:
        async with serving() as (server, _), grpc.aio.insecure_channel(server.address) as channel:
            stub = RuntimeServiceStub(channel)
            await stub.CloseSession(pb.CloseSessionRequest(session_id="well"))
            await ended(stub.CloseSession(pb.CloseSessionRequest(session_id="full")))
            assert [answer.token_id async for answer in stub.Generate(pb.GenerateRequest(max_tokens=3))] == [0, 1, 2]
            left = stub.Generate(pb.GenerateRequest(max_tokens=1_000_000))
            async for answer in left:
                if answer.token_id == 1:
                    break
            left.cancel()
            async with asyncio.timeout(60):
                while len(lines) < 4:
                    await asyncio.sleep(0.01)
    assert all(line.pop("seconds") >= 0 and line.pop("log_level") == "info" for line in lines)
    assert lines[-1].pop("responses") >= 2
    assert lines == [
        {"event": "call", "method": CLOSE, "status": "OK", "history_length": 7},
        {"event": "call", "method": CLOSE, "status": "NO_CAPACITY"},
        {"event": "call", "method": GENERATE, "status": "OK", "responses": 3},
        {"event": "call", "method": GENERATE, "status": "CANCELLED"},
    ]


def test_what_is_called_all_the_time_is_said_to_those_who_look_for_faults() -> None:
    with structlog.testing.capture_logs() as lines:
        with CallMeters(Meters(is_on=False), "toy").counted("/kakeya.worker.v1.VerifierService/Acknowledge"):
            tell(tokens=1)
        tell(tokens=2)  # of no call
    (line,) = lines
    assert (line["log_level"], line["tokens"]) == ("debug", 1)
