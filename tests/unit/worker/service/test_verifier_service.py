"""VerifierService over a real socket: the engine's results and errors as the contract spells them."""

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from kakeya_shared.contract.history_digest import EMPTY_HISTORY, extended_digest
from kakeya_shared.errors import error_details
from kakeya_shared.errors.tree import InvalidField
from kakeya_shared.rpc.server import RpcServer
from kakeya_stubs.worker.v1 import verifier_pb2 as pb
from kakeya_stubs.worker.v1.verifier_pb2_grpc import VerifierServiceStub, add_VerifierServiceServicer_to_server
from kakeya_worker.conformance.tools.tokenizer_files import NUM_TOKENS, token_text, write_tokenizer
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.lanes import operation
from kakeya_worker.engine.lanes.operation import Generate
from kakeya_worker.engine.sampling.sampling import Sampling, TokenDetail
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.row import Row
from kakeya_worker.grammars.grammars import Grammars
from kakeya_worker.joining.lease import Lease
from kakeya_worker.service import operation_requests
from kakeya_worker.service.verifier_service import SERVICE_NAME, VerifierService
from kakeya_worker.snapshots.snapshot_store import open_store
from kakeya_worker.snapshots.snapshots import Snapshots
from kakeya_worker.torch_backend import TorchVerifier
from tests.unit.worker.engine_calls import TIMEOUT, Tokens

BYTES = 2_048
LEASE: dict[str, Any] = {"session_id": "s", "epoch": 3}
VOCABULARY = 1024


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


def _lane(length: int, since: Sequence[int] = ()) -> pb.LaneState:
    """Of the session that `stub` opens, with tokens after its first forty."""
    digest = extended_digest(EMPTY_HISTORY, [*range(40), *since][:length])
    parts = [(0, length)][: bool(length)] if length <= 68 else [(0, 4), (length - 64, length)]
    retained = [pb.TokenRange(start=start, end=end) for start, end in parts]
    live_bytes = min(length, 68) * BYTES
    return pb.LaneState(history_length=length, kv_live_bytes=live_bytes, retained=retained, history_digest=digest)


@pytest.fixture
async def stub(service: tuple[VerifierService, Any], engine: Engine, tmp_path: Path) -> AsyncIterator[Any]:
    """A stub of a service with a running engine and a snapshot store, and one open session with 40 tokens."""
    snapshots = Snapshots(engine, open_store(str(tmp_path)))
    grammars = Grammars(write_tokenizer(tmp_path), "", VOCABULARY)
    service[0].begin(engine, snapshots, grammars)
    stub = service[1]
    await stub.OpenSession(pb.OpenSessionRequest(**LEASE, sink=4, window=64, tenant="acme"))
    await stub.Append(pb.AppendRequest(**LEASE, history_length=0, token_ids=range(40)))
    yield stub
    snapshots.close(TIMEOUT)
    grammars.close(TIMEOUT)


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
    assert append.lane == _lane(43, [1, 2, 3])
    assert append.prefill_duration_seconds > 0
    request = pb.GenerateRequest(**LEASE, history_length=43, max_tokens=30, sampling=pb.Sampling(top_p=1.0))
    responses = [response async for response in stub.Generate(request)]
    assert [response.WhichOneof("payload") for response in responses] == ["token_id"] * 30 + ["done"]
    done = responses[-1].done
    assert done.finish_reason == pb.FINISH_REASON_MAX_TOKENS
    assert done.generated_token_count == 30
    assert done.lane == _lane(73, [1, 2, 3, *(response.token_id for response in responses[:-1])])
    assert done.evicted_token_count == 5
    slab = await stub.GetSlab(pb.GetSlabRequest())
    assert (slab.num_lanes, slab.num_lanes_in_use, slab.kv_live_bytes) == (2, 1, 68 * BYTES)
    closed = await stub.CloseSession(pb.CloseSessionRequest(**LEASE))
    assert closed.final_history_length == 73


async def test_a_session_is_closed_with_its_last_answer(stub: Any, engine: Engine) -> None:
    request = pb.GenerateRequest(**LEASE, history_length=40, max_tokens=5, sampling=pb.Sampling(top_p=1.0))
    *_, last = [response async for response in stub.Generate(request)]
    assert not last.done.session_closed
    request.history_length, request.closes_session = 45, True
    *tokens, last = [response async for response in stub.Generate(request)]
    assert (len(tokens), last.done.lane.history_length, last.done.session_closed) == (5, 50, True)
    assert engine.lanes.totals().num_lanes_in_use == 0
    assert await _reason(stub.CloseSession(pb.CloseSessionRequest(**LEASE))) == (
        grpc.StatusCode.NOT_FOUND,
        "SESSION_NOT_FOUND",
    )


async def test_drafts_are_counted(stub: Any) -> None:
    """Of a session that asks for a proposer. A token over and over is what `ngram` finds."""
    lease: dict[str, Any] = {"session_id": "drafting", "epoch": 1}
    await stub.OpenSession(pb.OpenSessionRequest(**lease, sink=4, window=64, speculation="ngram"))
    await stub.Append(pb.AppendRequest(**lease, history_length=0, token_ids=range(40)))
    sampling = pb.Sampling(top_p=1.0, logit_bias={7: 1000.0})
    request = pb.GenerateRequest(**lease, history_length=40, max_tokens=50, sampling=sampling)
    *tokens, last = [response async for response in stub.Generate(request)]
    assert [response.token_id for response in tokens] == [7] * 50
    assert 0 < last.done.accepted_token_count <= last.done.drafted_token_count


async def test_a_proposer_that_is_not_here_is_refused_to_a_new_session(stub: Any) -> None:
    request = pb.OpenSessionRequest(session_id="drafting", epoch=1, sink=4, window=64, speculation="medusa")
    assert await _reason(stub.OpenSession(request)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    request.epoch = 2
    with capture_logs() as logs:
        await stub.OpenSession(request)
    assert {line["log_level"] for line in logs} <= {"info", "debug"}, "so it is where a session goes on elsewhere"
    request.speculation = "m" * 65
    assert await _reason(stub.OpenSession(request)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")


async def test_what_appended_tokens_are_worth(stub: Any) -> None:
    append = await stub.Append(pb.AppendRequest(**LEASE, history_length=40, token_ids=[1, 2, 3], logprobs=20))
    assert len(append.logprobs) == 3
    for detail in append.logprobs:
        logprobs = [top.logprob for top in detail.top_logprobs]
        assert len(logprobs) == 20
        assert logprobs == sorted(logprobs, reverse=True)
        assert detail.logprob <= logprobs[0] < 0
    (alone,) = (await stub.Append(pb.AppendRequest(**LEASE, history_length=43, token_ids=[4], logprobs=0))).logprobs
    assert (alone.logprob < 0, list(alone.top_logprobs)) == (True, [])
    assert not (await stub.Append(pb.AppendRequest(**LEASE, history_length=44, token_ids=[5]))).logprobs


@pytest.mark.parametrize(("num_tokens", "logprobs"), [(1, 21), ((1 << 17) + 1, 0), ((1 << 17) // 21 + 1, 20)])
async def test_more_log_probabilities_than_an_answer_holds_are_refused(
    stub: Any, num_tokens: int, logprobs: int
) -> None:
    request = pb.AppendRequest(**LEASE, history_length=40, token_ids=[1] * num_tokens, logprobs=logprobs)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Append(request)
    error = error_details.decode(caught.value)
    assert isinstance(error, InvalidField)
    assert error.metadata == {"field": "logprobs"}


async def test_eos_ends_the_stream(stub: Any) -> None:
    request = pb.GenerateRequest(**LEASE, history_length=40, max_tokens=5, eos_token_ids=range(VOCABULARY))
    responses = [response async for response in stub.Generate(request)]
    assert len(responses) == 2
    assert responses[-1].done.finish_reason == pb.FINISH_REASON_EOS


async def test_a_fork_goes_on_where_its_source_ends(stub: Any) -> None:
    source = pb.ForkSource(**LEASE, history_length=40)
    opened = await stub.OpenSession(pb.OpenSessionRequest(session_id="t", epoch=1, fork_from=source))
    assert opened == pb.OpenSessionResponse(lane=_lane(40), sink=4, window=64)
    append = await stub.Append(pb.AppendRequest(session_id="t", epoch=1, history_length=40, token_ids=[1]))
    assert append.lane == _lane(41, [1])
    late = await _reason(stub.OpenSession(pb.OpenSessionRequest(session_id="u", fork_from=pb.ForkSource(**LEASE))))
    assert late == (grpc.StatusCode.ABORTED, "HISTORY_LENGTH_MISMATCH")


async def test_a_session_goes_on_from_a_snapshot(stub: Any) -> None:
    written = await stub.WriteSnapshot(pb.WriteSnapshotRequest(**LEASE, prefix="tiny/tiny.s-3-0"))
    assert (written.name, written.length) == ("tiny/tiny.s-3-0-40.safetensors", 40)
    assert written.size_bytes > 40 * BYTES
    opened = await stub.OpenSession(pb.OpenSessionRequest(session_id="r", epoch=4, snapshots=[written.name]))
    assert opened == pb.OpenSessionResponse(lane=_lane(40), sink=4, window=64)
    tokens = [await _generated(stub, session_id, epoch) for session_id, epoch in (("s", 3), ("r", 4))]
    assert tokens[0] == tokens[1]
    await stub.DeleteSnapshots(pb.DeleteSnapshotsRequest(names=[written.name]))
    again = pb.OpenSessionRequest(session_id="u", snapshots=[written.name])
    assert await _reason(stub.OpenSession(again)) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "SNAPSHOT_REFUSED",
    )


async def _generated(stub: Any, session_id: str, epoch: int, **fields: Any) -> list[int]:
    request = pb.GenerateRequest(session_id=session_id, epoch=epoch, history_length=40, max_tokens=9, **fields)
    return [response.token_id async for response in stub.Generate(request) if response.HasField("token_id")]


async def test_a_session_begins_with_one_thing_only(stub: Any) -> None:
    source = pb.ForkSource(**LEASE, history_length=40)
    for fields in ({"fork_from": source}, {"sink": 4}):
        request = pb.OpenSessionRequest(session_id="t", snapshots=["tiny/t-1.safetensors"], **fields)
        assert await _reason(stub.OpenSession(request)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")


async def test_a_rewind(stub: Any) -> None:
    rewound = await stub.Rewind(pb.RewindRequest(**LEASE, history_length=40, target_length=30))
    expected = _lane(30)
    expected.num_rewinds = 1
    assert rewound.lane == expected
    other = pb.RewindRequest(**LEASE, history_length=30, target_length=20, history_digest=1)
    assert await _reason(stub.Rewind(other)) == (grpc.StatusCode.ABORTED, "HISTORY_LENGTH_MISMATCH")
    late = pb.RewindRequest(**LEASE, history_length=40, target_length=20)
    assert await _reason(stub.Rewind(late)) == (grpc.StatusCode.ABORTED, "HISTORY_LENGTH_MISMATCH")


async def test_a_stop_brings_what_is_not_journaled(stub: Any) -> None:
    tokens = await _generated(stub, "s", 3)
    stopped = await stub.Stop(pb.StopRequest(**LEASE, journaled_length=45))
    assert (stopped.lane, list(stopped.token_ids)) == (_lane(49, tokens), tokens[5:])
    assert not (await stub.Stop(pb.StopRequest(**LEASE))).token_ids


async def test_a_generate_goes_on_after_what_it_has_produced_elsewhere(stub: Any) -> None:
    tokens = await _generated(stub, "s", 3)
    await stub.OpenSession(pb.OpenSessionRequest(session_id="t", epoch=1, sink=4, window=64))
    begun = pb.AppendRequest(session_id="t", epoch=1, token_ids=[*range(40), *tokens[:4]])
    await stub.Append(begun)
    request = pb.GenerateRequest(
        session_id="t", epoch=1, history_length=44, max_tokens=9, previous_token_ids=tokens[:4], acknowledges=True
    )
    *rest, done = [response async for response in stub.Generate(request)]
    assert [response.token_id for response in rest] == tokens[4:]
    assert done.done.generated_token_count == 9
    too_many = pb.GenerateRequest(**LEASE, history_length=49, max_tokens=2, previous_token_ids=[1, 2, 3])
    assert await _reason(stub.Generate(too_many)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")


@pytest.mark.parametrize("option", [{"sink": 4}, {"window": 64}, {"pin": 0}, {"refuse_overflow": True}], ids=str)
async def test_a_fork_has_no_options_of_its_own(stub: Any, option: dict[str, Any]) -> None:
    request = pb.OpenSessionRequest(session_id="t", fork_from=pb.ForkSource(**LEASE, history_length=40), **option)
    assert await _reason(stub.OpenSession(request)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert (await stub.GetSlab(pb.GetSlabRequest())).num_lanes_in_use == 1


async def test_opening_tells_what_was_chosen(stub: Any) -> None:
    opened = await stub.OpenSession(pb.OpenSessionRequest(session_id="t", pin=10))
    assert opened == pb.OpenSessionResponse(lane=_lane(0), sink=10, window=58)
    again = await stub.OpenSession(pb.OpenSessionRequest(**LEASE, sink=9))
    assert again == pb.OpenSessionResponse(lane=_lane(40), sink=4, window=64)


async def test_a_full_session_that_refuses_to_forget(stub: Any) -> None:
    await stub.OpenSession(pb.OpenSessionRequest(session_id="t", window=30, sink=2, refuse_overflow=True))
    await stub.Append(pb.AppendRequest(session_id="t", token_ids=range(30)))
    too_long = pb.AppendRequest(session_id="t", history_length=30, token_ids=range(3))
    assert await _reason(stub.Append(too_long)) == (grpc.StatusCode.FAILED_PRECONDITION, "HISTORY_FULL")
    request = pb.GenerateRequest(session_id="t", history_length=30, max_tokens=9)
    *tokens, done = [response async for response in stub.Generate(request)]
    assert (len(tokens), done.done.finish_reason) == (2, pb.FINISH_REASON_TRUNCATED)


async def test_a_stop_sequence_ends_the_stream(stub: Any) -> None:
    everything = [pb.TokenSequence(token_ids=[token_id]) for token_id in range(16)]
    sampling = pb.Sampling(top_p=1.0, logit_bias={7: 100.0})
    request = pb.GenerateRequest(
        **LEASE, history_length=40, max_tokens=5, sampling=sampling, stop_token_sequences=everything
    )
    responses = [response async for response in stub.Generate(request)]
    assert [response.token_id for response in responses[:-1]] == [7]
    assert responses[-1].done.finish_reason == pb.FINISH_REASON_STOP_SEQUENCE


def test_every_field_of_a_request_reaches_the_engine() -> None:
    def on_token(token_id: int, detail: TokenDetail | None) -> None:
        raise AssertionError("nothing generates here")

    sampling = pb.Sampling(
        seed=2**63,
        temperature=0.5,
        top_p=0.75,
        top_k=7,
        min_p=0.125,
        presence_penalty=1.5,
        frequency_penalty=-0.25,
        logit_bias={9: 2.5, 3: -1.0},
        repetition_penalty=1.25,
    )
    sequences = [pb.TokenSequence(token_ids=[1, 2]), pb.TokenSequence(token_ids=[3])]
    request = pb.GenerateRequest(
        **LEASE,
        history_length=40,
        max_tokens=11,
        eos_token_ids=[5, 6],
        sampling=sampling,
        stop_token_sequences=sequences,
        logprobs=0,
        acknowledges=True,
        min_tokens=10,
        ignore_eos=True,
    )
    generate = operation_requests.generate(request, VOCABULARY, on_token)
    assert generate.sampling == Sampling(2**63, 0.5, 0.75, 7, 0.125, 1.5, -0.25, ((3, -1.0), (9, 2.5)), 1.25)
    assert generate.stop_token_sequences == ((1, 2), (3,))
    assert (generate.session_id, generate.epoch, generate.history_length) == ("s", 3, 40)
    assert (generate.max_tokens, generate.num_top_logprobs) == (11, 0)
    assert generate.eos_token_ids == {5, 6}
    assert generate.on_token is on_token
    assert generate.acknowledges
    assert (generate.min_tokens, generate.ignores_eos) == (10, True)
    unset = operation_requests.generate(pb.GenerateRequest(max_tokens=1), VOCABULARY, on_token)
    assert (unset.sampling, unset.stop_token_sequences, unset.num_top_logprobs) == (Sampling(), (), None)
    assert not unset.acknowledges
    assert (unset.min_tokens, unset.ignores_eos) == (0, False)


async def test_details_come_where_they_are_asked_for(stub: Any) -> None:
    async def details(at: int, **asked: Any) -> list[pb.TokenDetail | None]:
        request = pb.GenerateRequest(**LEASE, history_length=at, max_tokens=2, **asked)
        responses = [response async for response in stub.Generate(request)]
        return [response.detail if response.HasField("detail") else None for response in responses]

    assert await details(40) == [None, None, None]
    *alone, of_done = await details(42, logprobs=0)
    assert of_done is None
    assert all(detail and detail.logprob < 0 and not detail.top_logprobs for detail in alone)
    *ranked, _ = await details(44, logprobs=20)
    for detail in ranked:
        assert detail
        logprobs = [top.logprob for top in detail.top_logprobs]
        assert len(logprobs) == 20
        assert logprobs == sorted(logprobs, reverse=True)
        assert detail.logprob == logprobs[0]


def _asking(**fields: Any) -> pb.GenerateRequest:
    return pb.GenerateRequest(**LEASE, history_length=40, **{"max_tokens": 1, **fields})


def _sampled(**fields: Any) -> pb.GenerateRequest:
    return _asking(sampling=pb.Sampling(**{"top_p": 1.0, **fields}))


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (_asking(max_tokens=0), "max_tokens"),
        (_asking(logprobs=21), "logprobs"),
        (_asking(stop_token_sequences=[pb.TokenSequence()]), "stop_token_sequences"),
        (_asking(stop_token_sequences=[pb.TokenSequence(token_ids=[1] * 65)]), "stop_token_sequences"),
        (_asking(stop_token_sequences=[pb.TokenSequence(token_ids=[1])] * 17), "stop_token_sequences"),
        (_sampled(temperature=-0.1), "temperature"),
        (_sampled(temperature=math.inf), "temperature"),
        (_sampled(temperature=math.nan), "temperature"),
        (_sampled(top_p=0.0), "top_p"),
        (_sampled(top_p=1.1), "top_p"),
        (_sampled(top_p=math.nan), "top_p"),
        (_sampled(min_p=-0.1), "min_p"),
        (_sampled(min_p=1.1), "min_p"),
        (_sampled(presence_penalty=2.1), "presence_penalty"),
        (_sampled(frequency_penalty=-2.1), "frequency_penalty"),
        (_sampled(frequency_penalty=math.nan), "frequency_penalty"),
        (_sampled(repetition_penalty=-0.5), "repetition_penalty"),
        (_sampled(repetition_penalty=2.5), "repetition_penalty"),
        (_sampled(repetition_penalty=math.nan), "repetition_penalty"),
        (_asking(min_tokens=2), "min_tokens"),
        (_asking(ignore_eos=True, eos_token_ids=range(VOCABULARY)), "eos_token_ids"),
        (_asking(min_tokens=1, eos_token_ids=range(VOCABULARY)), "eos_token_ids"),
        (_sampled(logit_bias={1: math.inf}), "logit_bias"),
        (_sampled(logit_bias=dict.fromkeys(range(1025), 1.0)), "logit_bias"),
    ],
)
async def test_bad_values_are_refused_by_name(stub: Any, request_: pb.GenerateRequest, field: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Generate(request_).read()
    error = error_details.decode(caught.value)
    assert isinstance(error, InvalidField)
    assert error.metadata == {"field": field}
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_greatest_values_are_taken(stub: Any) -> None:
    sampling = pb.Sampling(
        seed=2**64 - 1,
        temperature=1e9,
        top_p=1.0,
        top_k=2**32 - 1,
        min_p=1.0,
        presence_penalty=2.0,
        frequency_penalty=-2.0,
        logit_bias=dict.fromkeys(range(1024), -3e38),
        repetition_penalty=2.0,
    )
    sequences = [pb.TokenSequence(token_ids=[VOCABULARY - 1] * 64)] * 16
    request = _asking(
        sampling=sampling, stop_token_sequences=sequences, logprobs=20, max_tokens=2**32 - 1, min_tokens=2**32 - 1
    )
    assert (await stub.Generate(request).read()).HasField("detail")


async def test_a_client_that_leaves_stops_its_operation(
    stub: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, and not since its tokens are not read for long."""
    monkeypatch.setattr(operation, "MAX_PAUSE_SECONDS", math.inf)
    call = stub.Generate(pb.GenerateRequest(**LEASE, history_length=40, max_tokens=10**6))
    num_tokens = 0
    async for _ in call:
        num_tokens += 1
        if num_tokens == 5:
            break
    call.cancel()
    async with asyncio.timeout(TIMEOUT):
        while any(occupant.operation for occupant in engine.lanes.occupants()):
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


def _acknowledge(num_tokens: int) -> pb.AcknowledgeRequest:
    return pb.AcknowledgeRequest(**LEASE, num_tokens=num_tokens)


async def test_what_is_sent_is_unread_until_it_is_acknowledged(stub: Any, engine: Engine) -> None:
    call = stub.Generate(pb.GenerateRequest(**LEASE, history_length=40, max_tokens=200, acknowledges=True))
    tokens = aiter(call)
    generate = await _read(tokens, 64, engine)
    assert generate.is_paused
    assert await stub.Acknowledge(_acknowledge(16)) == pb.AcknowledgeResponse()
    assert await _read(tokens, 16, engine) is generate
    assert (generate.num_generated, generate.num_read, generate.is_paused) == (80, 16, True)
    await stub.Acknowledge(_acknowledge(10**6))
    await _read(tokens, 64, engine)
    await stub.Acknowledge(_acknowledge(7))
    assert (generate.num_generated, generate.num_read) == (144, 80)
    await stub.Acknowledge(_acknowledge(144))
    *rest, done = [response async for response in tokens]
    assert (len(rest), done.done.generated_token_count) == (56, 200)


async def _read(tokens: Any, num_tokens: int, engine: Engine) -> Generate:
    """Reads some tokens of the stream; the operation that made them."""
    for _ in range(num_tokens):
        assert (await anext(tokens)).WhichOneof("payload") == "token_id"
    operation = engine.lanes.find("s", 3).operation
    assert isinstance(operation, Generate)
    return operation


async def test_who_does_not_say_so_acknowledges_nothing(stub: Any, engine: Engine) -> None:
    tokens = Tokens(wanted=64)
    request = pb.GenerateRequest(**LEASE, history_length=40, max_tokens=1000)
    generate = operation_requests.generate(request, VOCABULARY, tokens)
    engine.submit(generate)
    assert await asyncio.to_thread(tokens.enough.wait, TIMEOUT)
    await stub.Acknowledge(_acknowledge(10))
    assert generate.num_read == 0


async def test_what_is_sent_is_read_where_nobody_acknowledges(stub: Any, engine: Engine) -> None:
    call = stub.Generate(pb.GenerateRequest(**LEASE, history_length=40, max_tokens=10**6))
    generate = await _read(aiter(call), 100, engine)
    assert generate.num_read >= 36


async def test_acknowledging_where_no_generate_runs_changes_nothing(
    stub: Any, verifier: TorchVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stub.Acknowledge(_acknowledge(5))
    is_in_step, goes_on = threading.Event(), threading.Event()
    forward = verifier.forward

    def held(rows: Sequence[Row]) -> None:
        is_in_step.set()
        assert goes_on.wait(TIMEOUT)
        forward(rows)

    monkeypatch.setattr(verifier, "forward", held)
    append = stub.Append(pb.AppendRequest(**LEASE, history_length=40, token_ids=[1]))
    assert await asyncio.to_thread(is_in_step.wait, TIMEOUT)
    try:
        await stub.Acknowledge(_acknowledge(5))  # answers while a step is under way
    finally:
        goes_on.set()
    assert (await append).lane == _lane(41, [1])


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
        ("OpenSession", pb.OpenSessionRequest(session_id=""), "INVALID_ARGUMENT", "INVALID_FIELD"),
        ("OpenSession", pb.OpenSessionRequest(session_id="t" * 129), "INVALID_ARGUMENT", "INVALID_FIELD"),
        ("OpenSession", pb.OpenSessionRequest(session_id="t\n"), "INVALID_ARGUMENT", "INVALID_FIELD"),
        ("OpenSession", pb.OpenSessionRequest(session_id="t", tenant="a b"), "INVALID_ARGUMENT", "INVALID_FIELD"),
        ("OpenSession", pb.OpenSessionRequest(session_id="t", epoch=1 << 60), "INVALID_ARGUMENT", "INVALID_FIELD"),
        ("OpenSession", pb.OpenSessionRequest(session_id="t", pin=68), "INVALID_ARGUMENT", "INVALID_FIELD"),
        ("OpenSession", pb.OpenSessionRequest(session_id="t", window=0), "INVALID_ARGUMENT", "INVALID_FIELD"),
        ("OpenSession", pb.OpenSessionRequest(session_id="t", window=65), "INVALID_ARGUMENT", "INVALID_FIELD"),
        ("OpenSession", pb.OpenSessionRequest(session_id="s", epoch=2, window=9), "FAILED_PRECONDITION", "STALE_EPOCH"),
        ("Append", pb.AppendRequest(session_id="t"), "NOT_FOUND", "SESSION_NOT_FOUND"),
        (
            "Append",
            pb.AppendRequest(**LEASE, history_length=40, token_ids=[5, VOCABULARY]),
            "INVALID_ARGUMENT",
            "TOKEN_OUT_OF_VOCABULARY",
        ),
        ("Append", pb.AppendRequest(**LEASE, history_length=41), "ABORTED", "HISTORY_LENGTH_MISMATCH"),
        ("Generate", _sampled(logit_bias={VOCABULARY: 1.0}), "INVALID_ARGUMENT", "TOKEN_OUT_OF_VOCABULARY"),
        (
            "Generate",
            _asking(eos_token_ids=[VOCABULARY], ignore_eos=True),
            "INVALID_ARGUMENT",
            "TOKEN_OUT_OF_VOCABULARY",
        ),
        (
            "Generate",
            _asking(stop_token_sequences=[pb.TokenSequence(token_ids=[VOCABULARY])]),
            "INVALID_ARGUMENT",
            "TOKEN_OUT_OF_VOCABULARY",
        ),
        ("Stop", pb.StopRequest(session_id="t"), "NOT_FOUND", "SESSION_NOT_FOUND"),
        ("Acknowledge", pb.AcknowledgeRequest(session_id="t"), "NOT_FOUND", "SESSION_NOT_FOUND"),
        ("Acknowledge", pb.AcknowledgeRequest(session_id="s", epoch=2), "FAILED_PRECONDITION", "STALE_EPOCH"),
        ("CloseSession", pb.CloseSessionRequest(session_id="s", epoch=2), "FAILED_PRECONDITION", "STALE_EPOCH"),
    ],
)
async def test_refusals(stub: Any, method: str, request_: Any, status: str, reason: str) -> None:
    assert await _reason(getattr(stub, method)(request_)) == (grpc.StatusCode[status], reason)


async def test_before_the_model_is_loaded_nothing_is_served(service: tuple[VerifierService, Any]) -> None:
    call = service[1].GetSlab(pb.GetSlabRequest())
    assert await _reason(call) == (grpc.StatusCode.UNAVAILABLE, "NO_WORKER")


END = NUM_TOKENS - 2
DIGITS = pb.Grammar(regex="[0-9]{3,20}")


async def test_an_answer_under_a_grammar(stub: Any) -> None:
    asked: dict[str, Any] = {
        "max_tokens": 60,
        "eos_token_ids": [END],
        "sampling": pb.Sampling(seed=3, temperature=1.0, top_p=1.0),
    }
    request = pb.GenerateRequest(**LEASE, history_length=40, grammar=DIGITS, **asked)
    *tokens, done = [response async for response in stub.Generate(request)]
    assert done.done.finish_reason == pb.FINISH_REASON_EOS
    token_ids = [token.token_id for token in tokens]
    assert token_ids[-1] == END
    assert token_text(token_ids[:-1]).isdigit()
    await stub.CheckGrammar(pb.CheckGrammarRequest(grammar=DIGITS))


@pytest.mark.parametrize(
    ("grammar", "field"),
    [
        (pb.Grammar(), "grammar"),
        (pb.Grammar(regex=""), "grammar.regex"),
        (pb.Grammar(regex="("), "grammar.regex"),
        (pb.Grammar(choice=pb.Grammar.Choice()), "grammar.choice"),
        (pb.Grammar(choice=pb.Grammar.Choice(texts=["a" * (1 << 17), "b" * (1 << 17), "c"])), "grammar.choice"),
        (pb.Grammar(json_schema='{"not": {}}'), "grammar.json_schema"),
        (pb.Grammar(lark="start: missing"), "grammar.lark"),
    ],
)
async def test_a_grammar_that_cannot_be_used_changes_nothing(stub: Any, grammar: pb.Grammar, field: str) -> None:
    generate = pb.GenerateRequest(**LEASE, history_length=40, max_tokens=3, eos_token_ids=[END], grammar=grammar)
    for call in (stub.Generate(generate), _once(stub.CheckGrammar(pb.CheckGrammarRequest(grammar=grammar)))):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in call:
                pass
        error = error_details.decode(caught.value)
        assert isinstance(error, InvalidField)
        assert error.metadata == {"field": field}
    await stub.Append(pb.AppendRequest(**LEASE, history_length=40, token_ids=[1]))


async def test_a_grammar_needs_ends(stub: Any) -> None:
    asked: dict[str, Any] = {**LEASE, "history_length": 40, "max_tokens": 3, "grammar": DIGITS}
    with_ignored: dict[str, Any] = {"eos_token_ids": [END], "ignore_eos": True}
    for fields in (dict[str, Any](), with_ignored):
        assert await _reason(stub.Generate(pb.GenerateRequest(**asked, **fields))) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "INVALID_FIELD",
        )


async def test_a_grammar_begins_behind_what_the_model_thinks(stub: Any) -> None:
    asked: dict[str, Any] = {
        "max_tokens": 60,
        "eos_token_ids": [END],
        "sampling": pb.Sampling(seed=3, temperature=1.0, top_p=1.0),
    }
    reasoning = pb.Reasoning(end_token_ids=[500, 501], max_tokens=20)
    request = pb.GenerateRequest(**LEASE, history_length=40, grammar=DIGITS, reasoning=reasoning, **asked)
    token_ids = [response.token_id async for response in stub.Generate(request)][:-1]
    assert token_ids[20:22] == [500, 501]
    assert len(set(token_ids[:20])) > 10
    assert token_text(token_ids[22:-1]).isdigit()


@pytest.mark.parametrize(
    ("reasoning", "field"),
    [
        (pb.Reasoning(), "reasoning.end_token_ids"),
        (pb.Reasoning(end_token_ids=[1] * 17), "reasoning.end_token_ids"),
        (pb.Reasoning(end_token_ids=[1], begin_token_ids=[1] * 17), "reasoning.begin_token_ids"),
        (pb.Reasoning(end_token_ids=[1, END]), "reasoning.end_token_ids"),
        (pb.Reasoning(end_token_ids=[1], begin_token_ids=[END]), "reasoning.begin_token_ids"),
    ],
)
async def test_a_thought_that_cannot_be_told_apart_is_refused(stub: Any, reasoning: pb.Reasoning, field: str) -> None:
    request = pb.GenerateRequest(**LEASE, history_length=40, max_tokens=3, eos_token_ids=[END], reasoning=reasoning)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in stub.Generate(request):
            pass
    error = error_details.decode(caught.value)
    assert isinstance(error, InvalidField)
    assert error.metadata == {"field": field}


async def test_a_lane_is_opened_at_the_incarnation_that_is_meant(
    service: tuple[VerifierService, Any], stub: Any
) -> None:
    lease = Lease()
    lease.grant("here", lease.clock(), 0)
    service[0]._lease = lease
    meant: dict[str, Any] = {"session_id": "t", "epoch": 1, "incarnation": "gone"}
    status = (grpc.StatusCode.FAILED_PRECONDITION, "STALE_EPOCH")
    assert await _reason(stub.OpenSession(pb.OpenSessionRequest(**meant))) == status
    assert await _reason(stub.WriteLane(iter([pb.WriteLaneRequest(**meant)]))) == status
    assert (await stub.GetSlab(pb.GetSlabRequest())).num_lanes_in_use == 1
    await stub.OpenSession(pb.OpenSessionRequest(**meant | {"incarnation": "here"}))


@asynccontextmanager
async def answer_stream(stub: Any) -> AsyncIterator[Any]:
    """One that stands."""
    stream = stub.StreamAnswers()
    yield stream
    stream.cancel()


async def begin(stream: Any, answer: int, request: pb.GenerateRequest, **metadata: str) -> None:
    begun = pb.BegunAnswer(answer=answer, request=request, metadata=metadata)
    await stream.write(pb.StreamAnswersRequest(begun=begun))


async def heard(stream: Any) -> pb.StreamAnswersResponse:
    response: pb.StreamAnswersResponse = await asyncio.wait_for(stream.read(), TIMEOUT)
    return response


async def ends(stream: Any, number: int) -> dict[int, pb.EndedAnswer]:
    """How so many answers have ended, by their numbers."""
    ended: dict[int, pb.EndedAnswer] = {}
    while len(ended) < number:
        ended |= {each.answer: each for each in (await heard(stream)).ended}
    return ended


def reason(ended: pb.EndedAnswer) -> str:
    error = error_details.decode_status(ended.failed)
    assert error is not None
    return error.reason


async def test_tokens_of_a_step_come_in_one_message(stub: Any) -> None:
    """Of two sessions, with their ends behind them."""
    other: dict[str, Any] = {"session_id": "t", "epoch": 1}
    await stub.OpenSession(pb.OpenSessionRequest(**other, sink=4, window=64))
    await stub.Append(pb.AppendRequest(**other, history_length=0, token_ids=range(30)))
    alone = [response.token_id async for response in stub.Generate(generate_request(LEASE, 40, 20))][:-1]
    await stub.Rewind(pb.RewindRequest(**LEASE, history_length=60, target_length=40))
    async with answer_stream(stub) as stream:
        await begin(stream, 5, generate_request(LEASE, 40, 20, logprobs=1))
        await begin(stream, 6, generate_request(other, 30, 20))
        messages: list[pb.StreamAnswersResponse] = []
        while sum(len(message.ended) for message in messages) < 2:
            messages.append(await heard(stream))
    tokens: dict[int, list[int]] = {5: [], 6: []}
    for message in messages:
        assert len(message.answers) == len(message.token_ids) <= 2
        for answer, token_id in zip(message.answers, message.token_ids, strict=True):
            tokens[answer].append(token_id)
        assert [message.answers[place] for place in message.details] == [5] * (5 in message.answers)
        assert all(len(detail.top_logprobs) == 1 for detail in message.details.values())
        for end in message.ended:
            assert (end.done.generated_token_count, len(tokens[end.answer])) == (20, 20)
    assert tokens[5] == alone
    assert sum(bool(message.token_ids) for message in messages) < 40, "steps of both"


async def test_a_row_of_a_stream_pauses_until_its_tokens_are_acknowledged(stub: Any, engine: Engine) -> None:
    async with answer_stream(stub) as stream:
        await begin(stream, 1, generate_request(LEASE, 40, 200, acknowledges=True))
        for _ in range(operation.MAX_UNREAD_TOKENS):
            await heard(stream)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(reading := asyncio.ensure_future(stream.read())), 0.3)
        told = [pb.AcknowledgedAnswer(answer=7, num_tokens=9), pb.AcknowledgedAnswer(answer=1, num_tokens=1 << 40)]
        await stream.write(pb.StreamAnswersRequest(acknowledged=told))
        await asyncio.wait_for(reading, TIMEOUT)
        for num_tokens in range(operation.MAX_UNREAD_TOKENS + 1, 200):
            told = [pb.AcknowledgedAnswer(answer=1, num_tokens=num_tokens, journaled_length=50)]
            await stream.write(pb.StreamAnswersRequest(acknowledged=told))
            await heard(stream)
        assert (await ends(stream, 1))[1].done.generated_token_count == 200


async def test_an_answer_of_a_stream_fails_as_a_call_does(stub: Any) -> None:
    async with answer_stream(stub) as stream:
        await begin(stream, 1, generate_request({"session_id": "s", "epoch": 9}, 40, 3))
        await begin(stream, 2, generate_request(LEASE, 39, 3))
        await begin(stream, 3, generate_request(LEASE, 40, 3, sampling=pb.Sampling(top_p=2.0)))
        found = await ends(stream, 3)
        assert {number: reason(end) for number, end in found.items()} == {
            1: "STALE_EPOCH",
            2: "HISTORY_LENGTH_MISMATCH",
            3: "INVALID_FIELD",
        }
        await begin(stream, 5, generate_request(LEASE, 40, 3))
        assert (await ends(stream, 1))[5].done.generated_token_count == 3


async def test_an_answer_of_a_stream_is_cancelled_by_its_number(stub: Any, engine: Engine) -> None:
    async with answer_stream(stub) as stream:
        await begin(stream, 1, generate_request(LEASE, 40, 1000))
        await heard(stream)
        await stream.write(pb.StreamAnswersRequest(cancelled=[1, 99]))
        await begin(stream, 2, generate_request({"session_id": "s", "epoch": 9}, 40, 3))
        assert list(await ends(stream, 1)) == [2], "nothing more comes of the first"
        await _idle(engine)
        never = pb.StreamAnswersRequest(
            begun=pb.BegunAnswer(answer=3, request=generate_request(LEASE, 40, 1000)), cancelled=[3]
        )
        length = (await stub.Stop(pb.StopRequest(**LEASE))).lane.history_length
        await stream.write(never)
        await begin(stream, 4, generate_request(LEASE, length, 2))
        assert (await ends(stream, 1))[4].done.lane.history_length == length + 2


async def test_answers_end_with_their_stream(stub: Any, engine: Engine) -> None:
    async with answer_stream(stub) as stream:
        await begin(stream, 1, generate_request(LEASE, 40, 100_000))
        await heard(stream)
    await _idle(engine)
    stopped = await stub.Stop(pb.StopRequest(**LEASE, journaled_length=40))
    assert stopped.lane.history_length == 40 + len(stopped.token_ids) < 100_040


async def _idle(engine: Engine) -> None:
    async with asyncio.timeout(TIMEOUT):
        while engine.lanes.find(**LEASE).operation is not None:
            await asyncio.sleep(0.01)


async def test_a_stream_ends_with_its_router_and_with_the_service(
    stub: Any, service: tuple[VerifierService, Any]
) -> None:
    async with answer_stream(stub) as half_closed:
        await half_closed.done_writing()
        assert await heard(half_closed) == grpc.aio.EOF
        assert await half_closed.code() is grpc.StatusCode.OK
    async with answer_stream(stub) as first, answer_stream(stub) as second:
        for stream in (first, second):
            await begin(stream, 1, generate_request({"session_id": "s", "epoch": 9}, 40, 3))
            await ends(stream, 1)
        service[0].end()
        for stream in (first, second):
            assert await heard(stream) == grpc.aio.EOF
    assert not service[0]._answer_streams._standing


async def test_a_stream_that_ends_with_the_service_tells_first_how_its_answers_ended(
    stub: Any, service: tuple[VerifierService, Any]
) -> None:
    async with answer_stream(stub) as stream:
        await begin(stream, 1, generate_request(LEASE, 40, 30))
        await heard(stream)
        service[0].end()
        assert (await ends(stream, 1))[1].done.generated_token_count == 30
        assert await heard(stream) == grpc.aio.EOF


async def test_what_is_no_message_ends_a_stream(stub: Any, service: tuple[VerifierService, Any]) -> None:
    call = service[1].StreamAnswers
    call._request_serializer = lambda content: content
    stream = call()
    await stream.write(b"\xff")
    assert await heard(stream) == grpc.aio.EOF


async def test_a_number_that_comes_twice_ends_a_stream(stub: Any, engine: Engine) -> None:
    async with answer_stream(stub) as stream:
        for _ in range(2):
            await begin(stream, 1, generate_request(LEASE, 40, 100_000))
        while await heard(stream) != grpc.aio.EOF:
            continue
    await _idle(engine)


def generate_request(lease: dict[str, Any], length: int, max_tokens: int, **fields: Any) -> pb.GenerateRequest:
    return pb.GenerateRequest(**lease, history_length=length, max_tokens=max_tokens, **fields)
