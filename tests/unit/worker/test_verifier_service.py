"""VerifierService over a real socket: the engine's results and errors as the contract spells them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest

from kakeya_shared import error_details
from kakeya_shared.rpc_server import RpcServer
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_stubs.worker.v1.verifier_pb2_grpc import VerifierServiceStub, add_VerifierServiceServicer_to_server
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lane import LaneGeometry
from kakeya_worker.torch_backend import TorchVerifier
from kakeya_worker.verifier_service import SERVICE_NAME, VerifierService

BYTES = 2_048
LEASE: dict[str, Any] = {"session_id": "s", "epoch": 3}


@pytest.fixture
async def service(verifier: TorchVerifier) -> AsyncIterator[tuple[VerifierService, Any]]:
    """A service without an engine yet, and a stub."""
    service = VerifierService()
    server = RpcServer("127.0.0.1:0", [SERVICE_NAME])
    add_VerifierServiceServicer_to_server(service, server.grpc_server)
    async with server, grpc.aio.insecure_channel(server.address) as channel:
        yield service, VerifierServiceStub(channel)


@pytest.fixture
def engine(verifier: TorchVerifier) -> Iterator[Engine]:
    engine = Engine(verifier, LaneGeometry(4, 64, 32), num_lanes=2, step_tokens=64)
    engine.start()
    yield engine
    engine.shut_down()


@pytest.fixture
async def stub(service: tuple[VerifierService, Any], engine: Engine) -> Any:
    """A stub of a service with a running engine, and one open session with 40 tokens."""
    service[0].engine = engine
    stub = service[1]
    await stub.OpenSession(pb.OpenSessionRequest(**LEASE, sink=4, window=64))
    await stub.Append(pb.AppendRequest(**LEASE, history_length=0, token_ids=range(40)))
    return stub


async def _reason(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in call if hasattr(call, "__aiter__") else _once(call):
            pass
    error = error_details.decode(caught.value)
    assert error is not None
    return caught.value.code(), error.reason


async def _once(call: Any) -> AsyncIterator[Any]:
    yield await call


async def test_a_turn(stub: Any) -> None:
    append = await stub.Append(pb.AppendRequest(**LEASE, history_length=40, token_ids=[1, 2, 3]))
    assert append.lane == pb.LaneState(history_length=43, kv_live_bytes=43 * BYTES)
    assert append.prefill_duration_seconds > 0
    request = pb.GenerateRequest(**LEASE, history_length=43, max_tokens=30, sampling=pb.Sampling(top_p=1.0))
    responses = [response async for response in stub.Generate(request)]
    assert [response.WhichOneof("payload") for response in responses] == ["token_id"] * 30 + ["done"]
    done = responses[-1].done
    assert done.finish_reason == pb.FINISH_REASON_MAX_TOKENS
    assert done.generated_token_count == 30
    assert done.lane == pb.LaneState(history_length=73, kv_live_bytes=68 * BYTES)
    assert done.evicted_token_count == 5
    slab = await stub.GetSlab(pb.GetSlabRequest())
    assert (slab.num_lanes, slab.num_lanes_in_use, slab.kv_live_bytes) == (2, 1, 68 * BYTES)
    closed = await stub.CloseSession(pb.CloseSessionRequest(**LEASE))
    assert closed.final_history_length == 73


async def test_eos_ends_the_stream(stub: Any) -> None:
    request = pb.GenerateRequest(**LEASE, history_length=40, max_tokens=5, eos_token_ids=range(1024))
    responses = [response async for response in stub.Generate(request)]
    assert len(responses) == 2
    assert responses[-1].done.finish_reason == pb.FINISH_REASON_EOS


async def test_a_client_that_leaves_stops_its_operation(stub: Any, engine: Engine) -> None:
    call = stub.Generate(pb.GenerateRequest(**LEASE, history_length=40, max_tokens=10**6))
    num_tokens = 0
    async for _ in call:
        num_tokens += 1
        if num_tokens == 5:
            break
    call.cancel()
    while any(tenancy.operation for tenancy in engine.lanes.tenancies()):
        await asyncio.sleep(0.005)
    (report,) = engine.lanes.reports()
    assert report.state.history_length >= 45


async def test_stop_tells_what_is_committed(stub: Any) -> None:
    call = stub.Generate(pb.GenerateRequest(**LEASE, history_length=40, max_tokens=10**6))
    tokens = aiter(call)
    for _ in range(5):
        await anext(tokens)
    state = (await stub.Stop(pb.StopRequest(**LEASE))).lane
    assert await _reason(tokens) == (grpc.StatusCode.CANCELLED, "OPERATION_STOPPED")
    assert state.history_length >= 45
    assert state.kv_live_bytes == min(68, state.history_length) * BYTES


async def test_a_deadline_stops_an_append_and_keeps_its_prefix(stub: Any) -> None:
    request = pb.AppendRequest(**LEASE, history_length=40, token_ids=[1] * 300_000)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Append(request, timeout=0.5)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    state = (await stub.Stop(pb.StopRequest(**LEASE))).lane
    assert 40 <= state.history_length < 300_040


@pytest.mark.parametrize(
    ("method", "request_", "status", "reason"),
    [
        ("OpenSession", pb.OpenSessionRequest(session_id="t", sink=5, window=64), "INVALID_ARGUMENT", "INVALID_FIELD"),
        ("OpenSession", pb.OpenSessionRequest(session_id="t", window=0), "INVALID_ARGUMENT", "INVALID_FIELD"),
        ("OpenSession", pb.OpenSessionRequest(session_id="t", window=65), "INVALID_ARGUMENT", "INVALID_FIELD"),
        ("OpenSession", pb.OpenSessionRequest(session_id="s", epoch=4, window=9), "FAILED_PRECONDITION", "STALE_EPOCH"),
        ("Append", pb.AppendRequest(session_id="t"), "NOT_FOUND", "SESSION_NOT_FOUND"),
        (
            "Append",
            pb.AppendRequest(**LEASE, history_length=40, token_ids=[5, 1024]),
            "INVALID_ARGUMENT",
            "TOKEN_OUT_OF_VOCABULARY",
        ),
        ("Append", pb.AppendRequest(**LEASE, history_length=41), "FAILED_PRECONDITION", "INVARIANT_VIOLATED"),
        ("Generate", pb.GenerateRequest(**LEASE, history_length=40), "INVALID_ARGUMENT", "INVALID_FIELD"),
        ("Stop", pb.StopRequest(session_id="t"), "NOT_FOUND", "SESSION_NOT_FOUND"),
        ("CloseSession", pb.CloseSessionRequest(session_id="s", epoch=2), "FAILED_PRECONDITION", "STALE_EPOCH"),
    ],
)
async def test_refusals(stub: Any, method: str, request_: Any, status: str, reason: str) -> None:
    assert await _reason(getattr(stub, method)(request_)) == (grpc.StatusCode[status], reason)


async def test_before_the_model_is_loaded_nothing_is_served(service: tuple[VerifierService, Any]) -> None:
    call = service[1].GetSlab(pb.GetSlabRequest())
    assert await _reason(call) == (grpc.StatusCode.UNAVAILABLE, "NO_WORKER")
