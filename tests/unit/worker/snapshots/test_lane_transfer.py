"""Lanes from worker to worker over a real socket."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from kakeya_shared.contract.history_digest import EMPTY_HISTORY
from kakeya_shared.errors import error_details
from kakeya_shared.rpc.server import RpcServer
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_stubs.worker.v1.verifier_pb2_grpc import VerifierServiceStub, add_VerifierServiceServicer_to_server
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes.operation import Append
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.retention import SessionOptions
from kakeya_worker.grammars.grammars import Grammars
from kakeya_worker.service.verifier_service import SERVICE_NAME, VerifierService
from kakeya_worker.snapshots import lane_transfer
from kakeya_worker.snapshots.snapshots import Snapshots
from kakeya_worker.torch_backend import TorchVerifier

HERE: dict[str, Any] = {"session_id": "s", "epoch": 3}
THERE: dict[str, Any] = {"session_id": "s", "epoch": 4}


@pytest.fixture
def engines(random_checkpoint: Path) -> Iterator[list[Engine]]:
    """Two in exact mode, of which the second has larger steps, and so another ring."""
    engines = [
        Engine(
            TorchVerifier(str(random_checkpoint), weights="int8", kv_dtype="auto", num_threads=1, cache_directory=None),
            LaneGeometry(4, 64, chunk),
            num_lanes=1,
            step_tokens=64,
        )
        for chunk in (32, 48)
    ]
    for engine in engines:
        engine.start()
    yield engines
    for engine in engines:
        engine.shut_down()


@pytest.fixture
async def stubs(engines: list[Engine]) -> AsyncIterator[list[Any]]:
    """A stub of each; the first has a session of 150 tokens."""
    async with AsyncExitStack() as exits:
        stubs: list[Any] = []
        for engine in engines:
            service, server = VerifierService(), RpcServer("127.0.0.1:0", [SERVICE_NAME])
            service.begin(engine, Snapshots(engine, None), Grammars(None, "", engine.facts.vocab_size))
            add_VerifierServiceServicer_to_server(service, server.grpc_server)
            await exits.enter_async_context(server)
            stubs.append(
                VerifierServiceStub(await exits.enter_async_context(grpc.aio.insecure_channel(server.address)))
            )
        await stubs[0].OpenSession(pb.OpenSessionRequest(**HERE, tenant="acme"))
        await stubs[0].Append(pb.AppendRequest(**HERE, history_length=0, token_ids=range(150)))
        yield stubs


async def read(stub: Any, **lease: Any) -> list[bytes]:
    return [part.content async for part in stub.ReadLane(pb.ReadLaneRequest(**(lease or HERE)))]


async def write(stub: Any, parts: list[bytes], **lease: Any) -> pb.LaneState:
    async def requests() -> AsyncIterator[pb.WriteLaneRequest]:
        yield pb.WriteLaneRequest(**(lease or THERE), tenant="acme")
        for part in parts:
            yield pb.WriteLaneRequest(content=part)

    return (await stub.WriteLane(requests())).lane


async def generated(stub: Any, **lease: Any) -> list[pb.GenerateResponse]:
    request = pb.GenerateRequest(**lease, history_length=150, max_tokens=20, logprobs=5)
    return [response async for response in stub.Generate(request)][:-1]


async def refusal(call: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = error_details.decode(caught.value)
    assert error is not None
    return error.reason


async def test_a_lane_goes_on_elsewhere_with_the_same_bits(stubs: list[Any], engines: list[Engine]) -> None:
    lane = await write(stubs[1], await read(stubs[0]))
    assert lane == pb.LaneState(
        history_length=150,
        kv_live_bytes=engines[0].lanes.totals().kv_live_bytes,
        retained=[pb.TokenRange(start=0, end=4), pb.TokenRange(start=86, end=150)],
        history_digest=engines[0].lanes.occupant("s").lane.history_digest,
    )
    assert await generated(stubs[1], **THERE) == await generated(stubs[0], **HERE)
    assert engines[1].lanes.occupant("s").tenant == "acme"


@pytest.mark.parametrize("mode", [("float32", "auto"), ("int8", "float32"), ("int8", "int8")], ids="+".join)
async def test_a_lane_goes_on_in_another_mode_where_that_may_be(
    stubs: list[Any], random_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, mode: tuple[str, str]
) -> None:
    monkeypatch.setattr(lane_transfer, "_OVERHEAD_BYTES", 1 << 10)  # so that a lane of these few bytes is bounded
    weights, kv_dtype = mode
    other = TorchVerifier(
        str(random_checkpoint), weights=weights, kv_dtype=kv_dtype, num_threads=1, cache_directory=None
    )
    engine = Engine(other, LaneGeometry(4, 64, 32), num_lanes=1, step_tokens=64)
    engine.start()
    try:
        engine.open("s", 3, SessionOptions(), "acme").result(60)
        append = Append("s", 3, 0, tuple(range(150)))
        engine.submit(append)
        append.future.result(60)
        parts = [part async for part in lane_transfer.LaneTransfer(engine).read("s", 3)]
    finally:
        engine.shut_down()
    assert await refusal(write(stubs[1], parts)) == "SNAPSHOT_REFUSED"
    assert (await write(stubs[1], parts, **THERE, inexact=True)).history_length == 150
    assert len(await generated(stubs[1], **THERE)) == 20


async def test_a_session_without_tokens_moves_too(stubs: list[Any]) -> None:
    lease: dict[str, Any] = {"session_id": "empty", "epoch": 1}
    await stubs[0].CloseSession(pb.CloseSessionRequest(**HERE))
    await stubs[0].OpenSession(pb.OpenSessionRequest(**lease, sink=2, window=8))
    assert await write(stubs[1], await read(stubs[0], **lease)) == pb.LaneState(history_digest=EMPTY_HISTORY)
    append = await stubs[1].Append(pb.AppendRequest(**THERE, history_length=0, token_ids=range(20)))
    assert append.evicted_token_count == 10


async def test_it_comes_in_parts(stubs: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_transfer, "PART_BYTES", 1000)
    parts = await read(stubs[0])
    assert max(map(len, parts)) == 1000
    assert (await write(stubs[1], parts)).history_length == 150


async def test_what_is_damaged_or_too_large_takes_no_lane(stubs: list[Any], engines: list[Engine]) -> None:
    content = b"".join(await read(stubs[0]))
    damaged = content[:-1] + bytes([content[-1] ^ 1])
    middle = len(content) // 2  # of K and V, which are looked at last
    worse = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    too_large = [bytes(1 << 20)] * 4
    for parts in ([damaged], [worse], [content[:1000]], [b""], [], too_large):
        assert await refusal(write(stubs[1], parts)) == "SNAPSHOT_REFUSED"
    assert engines[1].lanes.totals().num_lanes_in_use == 0
    assert (await write(stubs[1], [content])).history_length == 150


async def test_what_nobody_leased_is_refused(stubs: list[Any]) -> None:
    parts = await read(stubs[0])
    assert await refusal(read(stubs[0], **THERE)) == "STALE_EPOCH"
    assert await refusal(read(stubs[1])) == "SESSION_NOT_FOUND"
    assert await refusal(write(stubs[1], parts, session_id="", epoch=1)) == "INVALID_FIELD"
    assert await refusal(stubs[1].WriteLane(_nothing())) == "INVALID_FIELD"
    assert await refusal(write(stubs[0], parts, session_id="t", epoch=1)) == "NO_CAPACITY"


async def _nothing() -> AsyncIterator[pb.WriteLaneRequest]:
    return
    yield


async def test_a_writer_that_vanishes_leaves_nothing(stubs: list[Any], engines: list[Engine]) -> None:
    call = stubs[1].WriteLane()
    await call.write(pb.WriteLaneRequest(**THERE))
    await call.write(pb.WriteLaneRequest(content=b"begun"))
    call.cancel()
    await generated(stubs[0], **HERE)
    assert engines[1].lanes.totals().num_lanes_in_use == 0
    assert (await write(stubs[1], await read(stubs[0]))).history_length == 170
