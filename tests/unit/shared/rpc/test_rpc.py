"""A served call's edge, over real sockets: errors, spans, health, reflection, and clients that vanish."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kakeya_shared import health_command
from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import Draining, NoCapacity
from kakeya_shared.rpc import rpc_boundary
from kakeya_shared.rpc.server import BindError, RpcServer
from kakeya_stubs.v1 import runtime_pb2 as pb
from kakeya_stubs.v1.runtime_pb2_grpc import RuntimeServiceStub
from tests.service_logs import beside_calls
from tests.unit.shared.toy_service import SERVICE, Toy, serving


@pytest.fixture
async def served() -> AsyncIterator[tuple[RpcServer, Toy]]:
    async with serving() as served:
        yield served


@pytest.fixture
async def stub(served: tuple[RpcServer, Toy]) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(served[0].address) as channel:
        yield RuntimeServiceStub(channel)


async def test_answers_pass(stub: Any) -> None:
    response = await stub.CloseSession(pb.CloseSessionRequest(session_id="fine"))
    assert response.final_history_length == 7
    tokens = [r.token_id async for r in stub.Generate(pb.GenerateRequest(max_tokens=5))]
    assert tokens == [0, 1, 2, 3, 4]


async def test_errors_of_the_tree_arrive_with_their_details(stub: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.CloseSession(pb.CloseSessionRequest(session_id="full"))
    error = error_details.decode(caught.value)
    assert isinstance(error, NoCapacity)
    assert error.retry_after_seconds == 2.0
    received = []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for response in stub.Generate(pb.GenerateRequest(session_id="full", max_tokens=3)):
            received.append(response.token_id)  # noqa: PERF401  # what came before the error counts
    assert received == [0, 1, 2]
    assert isinstance(error_details.decode(caught.value), NoCapacity)


async def test_the_unforeseen_is_internal_with_a_trace_id_and_no_internals(stub: Any) -> None:
    with structlog.testing.capture_logs() as logs, pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.CloseSession(pb.CloseSessionRequest(session_id="broken"))
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in str(caught.value)
    error = error_details.decode(caught.value)
    assert error is not None
    assert re.fullmatch("[0-9a-f]{32}", error.metadata["trace_id"])
    assert logs[0]["error_trace_id"] == error.metadata["trace_id"]


async def test_an_abort_by_hand_passes(stub: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.CloseSession(pb.CloseSessionRequest(session_id="abort"))
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.DATA_LOSS, "by hand")


async def test_a_client_that_leaves_a_stream_closes_its_generator(stub: Any, served: tuple[RpcServer, Toy]) -> None:
    call = stub.Generate(pb.GenerateRequest(max_tokens=10**9))
    async for response in call:
        if response.token_id == 5:
            break
    call.cancel()
    await asyncio.wait_for(served[1].closed.wait(), 60)


async def test_a_client_that_leaves_without_reading_is_no_error_of_ours(served: tuple[RpcServer, Toy]) -> None:
    server, toy = served
    small_window = [("grpc.http2.lookahead_bytes", 64), ("grpc.http2.bdp_probe", 0)]
    async with grpc.aio.insecure_channel(server.address, options=small_window) as channel:
        with structlog.testing.capture_logs() as logs:
            generating: Any = RuntimeServiceStub(channel)
            call = generating.Generate(pb.GenerateRequest(max_tokens=10**9))
            await call.read()
            await asyncio.sleep(0.2)  # the server cannot write any more
            call.cancel()
            await asyncio.wait_for(toy.closed.wait(), 60)
    assert beside_calls(logs) == []


async def test_a_client_that_leaves_a_unary_call(stub: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.CloseSession(pb.CloseSessionRequest(session_id="slow"), timeout=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_call_that_is_cancelled_here_says_why(served: tuple[RpcServer, Toy], stub: Any) -> None:
    _, toy = served
    call = stub.CloseSession(pb.CloseSessionRequest(session_id="slow"))
    while toy.sleeping is None:
        await asyncio.sleep(0.01)
    rpc_boundary.cancel(toy.sleeping, Draining("go elsewhere"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    raised = error_details.decode(caught.value)
    assert (type(raised), str(raised)) == (Draining, "go elsewhere")


async def test_health_follows_the_service(served: tuple[RpcServer, Toy], capsys: pytest.CaptureFixture[str]) -> None:
    server, _ = served
    assert await asyncio.to_thread(health_command.check, server.address, SERVICE) == "NOT_SERVING"
    assert await asyncio.to_thread(health_command.main, [server.address]) == 1
    await server.set_serving(True)
    assert await asyncio.to_thread(health_command.main, [server.address, "--service", SERVICE]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (f"{server.address} SERVING\n", f"{server.address} NOT_SERVING\n")
    async with grpc.aio.insecure_channel(server.address) as channel:
        response = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert response.status == health_pb2.HealthCheckResponse.SERVING


def test_health_of_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    assert health_command.main(["127.0.0.1:1", "--timeout-seconds", "1"]) == 1
    assert "UNAVAILABLE" in capsys.readouterr().err


async def test_a_taken_port_is_a_bind_error(served: tuple[RpcServer, Toy]) -> None:
    with pytest.raises(BindError, match="is it in use"):
        await RpcServer(served[0].address, [SERVICE]).__aenter__()


async def test_an_unknown_method_is_grpcs_own_affair(served: tuple[RpcServer, Toy]) -> None:
    async with grpc.aio.insecure_channel(served[0].address) as channel:
        call: Any = channel.unary_unary("/kakeya.v1.RuntimeService/NoSuchMethod")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
