"""The contract's status table, row by row, over real sockets, a real Redis and a real worker."""

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from kakeya_stubs.v1 import runtime_pb2 as pb
from kakeya_stubs.v1.runtime_pb2_grpc import RuntimeServiceStub
from tests.integration.processes import LONG_SECONDS, Runtime, runtime

VOCAB_SIZE = 1024


@pytest.fixture
async def stub(shared_runtime: Runtime) -> Any:
    async with grpc.aio.insecure_channel(shared_runtime.address) as channel:
        yield RuntimeServiceStub(channel)


@pytest.fixture
async def session_id(stub: Any) -> Any:
    """An open session of ten tokens."""
    created = await stub.CreateSession(pb.CreateSessionRequest())
    await stub.AppendTokens(pb.AppendTokensRequest(session_id=created.session_id, token_ids=range(10)))
    yield created.session_id
    try:
        await stub.CloseSession(pb.CloseSessionRequest(session_id=created.session_id))
    except grpc.aio.AioRpcError as error:
        assert error.code() is grpc.StatusCode.NOT_FOUND


async def failure(call: Any) -> tuple[str, str, float | None]:
    """Status, reason and retry delay of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    details = dict(caught.value.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    for detail in status_pb2.Status.FromString(details).details:
        _ = detail.Unpack(info) or detail.Unpack(retry)
    delay = retry.retry_delay.ToMilliseconds() / 1000 if retry.HasField("retry_delay") else None
    assert info.domain in ("kakeya", "")
    return caught.value.code().name, info.reason, delay


async def _info(stub: Any, session_id: str) -> pb.GetSessionInfoResponse:
    return await stub.GetSessionInfo(pb.GetSessionInfoRequest(session_id=session_id))


@pytest.mark.parametrize(
    ("method", "request_type"),
    [
        ("AppendTokens", pb.AppendTokensRequest),
        ("Generate", pb.GenerateRequest),
        ("CloseSession", pb.CloseSessionRequest),
        ("GetSessionInfo", pb.GetSessionInfoRequest),
    ],
)
@pytest.mark.parametrize("unknown", ["", "demo.unknown", "nopool.x", "\x00{}*", "x" * 5000])
async def test_unknown_sessions(stub: Any, method: str, request_type: type[Message], unknown: str) -> None:
    fields: dict[str, Any] = {"max_tokens": 1} if method == "Generate" else {}
    call = getattr(stub, method)(request_type(session_id=unknown, **fields))
    assert (await failure(call))[:2] == ("NOT_FOUND", "SESSION_NOT_FOUND")


async def test_closed_sessions(stub: Any, session_id: str) -> None:
    closed = await stub.CloseSession(pb.CloseSessionRequest(session_id=session_id))
    assert closed.final_history_length == 10
    assert (await failure(_info(stub, session_id)))[:2] == ("NOT_FOUND", "SESSION_NOT_FOUND")


@pytest.mark.parametrize(
    "request_",
    [
        pb.CreateSessionRequest(sink=68),
        pb.CreateSessionRequest(sink=5, window=64),
        pb.CreateSessionRequest(pin=68),
        pb.CreateSessionRequest(on_overflow=7),  # type: ignore[arg-type]  # no policy
        pb.CreateSessionRequest(window=0),
        pb.CreateSessionRequest(window=65),
        pb.CreateSessionRequest(ttl_seconds=0),
        pb.CreateSessionRequest(client_label="x" * 257),
        pb.CreateSessionRequest(eos_token_ids=[VOCAB_SIZE]),
    ],
)
async def test_impossible_sessions(stub: Any, shared_runtime: Runtime, request_: pb.CreateSessionRequest) -> None:
    status, _, _ = await failure(stub.CreateSession(request_))
    assert status == "INVALID_ARGUMENT"
    assert sum(worker.reserved_bytes for worker in shared_runtime.list_workers()) == 0


async def test_a_model_that_nobody_serves(stub: Any) -> None:
    call = stub.CreateSession(pb.CreateSessionRequest(model="Qwen/Qwen9"))
    assert (await failure(call))[:2] == ("UNAVAILABLE", "NO_WORKER")


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 0},
        {"max_tokens": 1, "temperature": -0.1},
        {"max_tokens": 1, "temperature": math.nan},
        {"max_tokens": 1, "temperature": math.inf},
        {"max_tokens": 1, "top_p": 0.0},
        {"max_tokens": 1, "top_p": 1.1},
        {"max_tokens": 1, "top_p": math.nan},
    ],
)
async def test_bad_sampling_leaves_the_session_as_it_was(stub: Any, session_id: str, fields: dict[str, Any]) -> None:
    before = await _info(stub, session_id)
    status, reason, _ = await failure(stub.Generate(pb.GenerateRequest(session_id=session_id, **fields)))
    assert (status, reason) == ("INVALID_ARGUMENT", "INVALID_FIELD")
    after = await _info(stub, session_id)
    assert (after.history_length, after.kv_live_bytes) == (before.history_length, before.kv_live_bytes)


@pytest.mark.parametrize(
    ("token_ids", "reason"),
    [
        ([VOCAB_SIZE], "TOKEN_OUT_OF_VOCABULARY"),
        ([1, 2**32 - 1], "TOKEN_OUT_OF_VOCABULARY"),
        ([1] * 65_537, "APPEND_TOO_LONG"),
    ],
)
async def test_bad_appends_leave_the_session_as_it_was(
    stub: Any, session_id: str, token_ids: list[int], reason: str
) -> None:
    call = stub.AppendTokens(pb.AppendTokensRequest(session_id=session_id, token_ids=token_ids))
    assert (await failure(call))[:2] == ("INVALID_ARGUMENT", reason)
    assert (await _info(stub, session_id)).history_length == 10


async def test_generate_before_any_append(stub: Any) -> None:
    created = await stub.CreateSession(pb.CreateSessionRequest())
    call = stub.Generate(pb.GenerateRequest(session_id=created.session_id, max_tokens=1))
    assert (await failure(call))[:2] == ("INVALID_ARGUMENT", "EMPTY_HISTORY")
    await stub.CloseSession(pb.CloseSessionRequest(session_id=created.session_id))


async def test_two_operations_at_once(stub: Any, session_id: str) -> None:
    running = stub.Generate(pb.GenerateRequest(session_id=session_id, max_tokens=65_536))
    await running.read()
    for call in (
        stub.AppendTokens(pb.AppendTokensRequest(session_id=session_id, token_ids=[1])),
        stub.AppendTokens(pb.AppendTokensRequest(session_id=session_id)),
        stub.Generate(pb.GenerateRequest(session_id=session_id, max_tokens=1)),
    ):
        assert (await failure(call))[:2] == ("ABORTED", "OPERATION_RUNNING")
    running.cancel()


async def test_expected_history_length(stub: Any, session_id: str) -> None:
    append = pb.AppendTokensRequest(session_id=session_id, token_ids=[7, 8], expected_history_length=10)
    assert (await stub.AppendTokens(append)).history_length == 12
    again = await stub.AppendTokens(append)  # the same tokens are there already
    assert again.history_length == 12
    assert (await _info(stub, session_id)).history_length == 12
    append.token_ids[0] = 9
    assert (await failure(stub.AppendTokens(append)))[:2] == ("ABORTED", "HISTORY_LENGTH_MISMATCH")
    generate = pb.GenerateRequest(session_id=session_id, max_tokens=1, expected_history_length=11)
    assert (await failure(stub.Generate(generate)))[:2] == ("ABORTED", "HISTORY_LENGTH_MISMATCH")


async def test_a_request_id_makes_creation_idempotent(stub: Any) -> None:
    request = pb.CreateSessionRequest(request_id="once")
    first, second = await asyncio.gather(stub.CreateSession(request), stub.CreateSession(request))
    assert first == second
    await stub.CloseSession(pb.CloseSessionRequest(session_id=first.session_id))


async def test_cancel_and_deadline_keep_what_was_committed(stub: Any, session_id: str) -> None:
    call = stub.Generate(pb.GenerateRequest(session_id=session_id, max_tokens=65_536))
    for _ in range(5):
        await call.read()
    call.cancel()
    length = await _length_when_free(stub, session_id)
    assert length >= 15
    for seconds in (0.3, 3, 30):  # until one is long enough for a token
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in stub.Generate(pb.GenerateRequest(session_id=session_id, max_tokens=65_536), timeout=seconds):
                pass
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        if (later := await _length_when_free(stub, session_id)) > length:
            break
    assert later > length


async def _length_when_free(stub: Any, session_id: str) -> int:
    """The history length once no operation runs any more."""
    while True:
        try:
            empty = await stub.AppendTokens(pb.AppendTokensRequest(session_id=session_id))
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.ABORTED
            await asyncio.sleep(0.01)
        else:
            return int(empty.history_length)


async def test_close_wins_over_a_running_operation(stub: Any, session_id: str) -> None:
    running = stub.Generate(pb.GenerateRequest(session_id=session_id, max_tokens=65_536))
    await running.read()
    closed = await stub.CloseSession(pb.CloseSessionRequest(session_id=session_id))
    assert closed.final_history_length > 10
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        while await running.read() is not grpc.aio.EOF:
            pass
    assert caught.value.code() is grpc.StatusCode.CANCELLED
    assert b"SESSION_CLOSED" in dict(caught.value.trailing_metadata())["grpc-status-details-bin"]


@pytest.fixture(scope="module")
def small_runtime(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """One worker with two lanes."""
    flags = ("--reap-interval-seconds=0.1", "--admission=reject")
    with runtime(model, tmp_path_factory.mktemp("small"), num_workers=0, router_flags=flags) as made:
        made.start_worker(lanes=2)
        made.wait_for_workers(1)
        yield made


async def test_no_capacity_says_when_to_try_again_and_expiry_makes_room(small_runtime: Runtime) -> None:
    async with grpc.aio.insecure_channel(small_runtime.address) as channel:
        stub: Any = RuntimeServiceStub(channel)
        sessions = [await stub.CreateSession(pb.CreateSessionRequest()) for _ in range(2)]
        status, reason, delay = await failure(stub.CreateSession(pb.CreateSessionRequest()))
        assert (status, reason) == ("RESOURCE_EXHAUSTED", "NO_CAPACITY")
        assert delay is not None
        assert delay > 0
        small_runtime.expire(sessions[0].session_id)
        async with asyncio.timeout(LONG_SECONDS):
            while (await _info_status(stub, sessions[0].session_id)) != "NOT_FOUND":  # info does not keep it alive
                await asyncio.sleep(0.1)
            while (taken := await _created(stub)) is None:  # it is not found while its lane is being closed
                await asyncio.sleep(0.1)
        for each in (sessions[1], taken):
            await stub.CloseSession(pb.CloseSessionRequest(session_id=each.session_id))


async def _created(stub: Any) -> Any:
    """A session; None: there is no lane."""
    try:
        return await stub.CreateSession(pb.CreateSessionRequest())
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise
        return None


async def _info_status(stub: Any, session_id: str) -> str:
    try:
        await _info(stub, session_id)
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


async def test_a_busy_session_does_not_expire(small_runtime: Runtime) -> None:
    async with grpc.aio.insecure_channel(small_runtime.address) as channel:
        stub: Any = RuntimeServiceStub(channel)
        created = await stub.CreateSession(pb.CreateSessionRequest())
        await stub.AppendTokens(pb.AppendTokensRequest(session_id=created.session_id, token_ids=range(10)))
        running = stub.Generate(pb.GenerateRequest(session_id=created.session_id, max_tokens=65_536))
        await running.read()
        small_runtime.expire(created.session_id)
        started = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < started + 1:  # several passes of the reaper
            assert (await running.read()).WhichOneof("payload") in ("token_id", "truncated")
        assert await _info_status(stub, created.session_id) == "OK"
        running.cancel()
