"""The calls of a session and its life."""

import numpy
import pytest

import kakeya
from kakeya import AsyncClient, AsyncSession, SessionState, StopReason
from kakeya_stubs.v1 import runtime_pb2
from tests.unit.sdk.scripted_runtime import BYTES_PER_TOKEN, SINK, VOCAB_SIZE, WINDOW, ScriptedRuntime, fails


async def test_create_session_sends_its_options_and_tells_what_was_granted(
    client: AsyncClient, runtime: ScriptedRuntime
) -> None:
    session = await client.create_session(
        eos_token_ids=[2, 3], label="notes", model="counter", sink=2, window=8, ttl_seconds=90
    )
    request = runtime.requests["CreateSession"][0]
    assert list(request.eos_token_ids) == [2, 3]
    assert (request.client_label, request.model, request.sink, request.window) == ("notes", "counter", 2, 8)
    assert request.ttl_seconds == 90
    assert len(request.request_id) == 32
    assert (session.id, session.model, session.sink, session.window) == ("counter.0", "counter", SINK, WINDOW)
    assert (session.reserved_bytes, session.vocab_size, session.history_length) == (32_768, VOCAB_SIZE, 0)


async def test_options_left_out_stay_unset(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    await client.create_session()
    request = runtime.requests["CreateSession"][0]
    assert not any(request.HasField(name) for name in ("sink", "window", "ttl_seconds"))
    assert request.model == ""


async def test_append_reports_and_tracks_the_history(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    result = await session.append([10, 11, 12])
    assert result == kakeya.AppendResult(
        history_length=3, kv_live_bytes=3 * BYTES_PER_TOKEN, prefill_seconds=0.25, num_evicted_tokens=7
    )
    assert session.history_length == 3
    await session.append([])
    assert [request.expected_history_length for request in runtime.requests["AppendTokens"]] == [0, 3]


async def test_generate_yields_tokens_and_then_its_result(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    await session.append([10])
    async with session.generate(max_tokens=3, temperature=0.5, top_p=0.75, top_k=4, seed=9) as generation:
        assert generation.done is None
        assert generation.op_id == "op-1"
        assert [token_id async for token_id in generation] == [11, 12, 13]
    assert generation.truncated is None
    assert generation.appended is None
    assert generation.done == kakeya.GenerateResult(
        stop_reason=StopReason.MAX_TOKENS,
        num_tokens=3,
        prefill_seconds=0.25,
        total_seconds=0.5,
        seed=9,
        op_id="op-1",
        num_evicted_tokens=5,
        history_length=4,
        kv_live_bytes=4 * BYTES_PER_TOKEN,
    )
    assert session.history_length == 4
    request = runtime.requests["Generate"][0]
    assert (request.temperature, request.top_p, request.top_k, request.seed) == (0.5, 0.75, 4, 9)
    assert request.expected_history_length == 1


async def test_sampling_left_out_stays_unset(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    await session.append([10])
    assert await session.generate(max_tokens=1).all() == [11]
    request = runtime.requests["Generate"][0]
    assert not any(request.HasField(name) for name in ("seed", "temperature", "top_p", "top_k"))


async def test_generate_stops_at_eos(client: AsyncClient) -> None:
    session = await client.create_session(eos_token_ids=[12])
    await session.append([10])
    generation = session.generate(max_tokens=9)
    assert await generation.all() == [11, 12]
    assert generation.done is not None
    assert generation.done.stop_reason is StopReason.EOS


async def test_generate_tells_how_much_the_model_could_not_see(session: AsyncSession) -> None:
    await session.append(range(SINK + WINDOW + 3))
    async with session.generate(max_tokens=1) as generation:
        async for _ in generation:
            assert generation.truncated == 3


async def test_turn_appends_and_generates(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    async with session.turn([20, 21], max_tokens=2) as generation:
        assert generation.appended is not None
        assert generation.appended.history_length == 2
        assert [token_id async for token_id in generation] == [22, 23]
    assert await session.turn([30], max_tokens=2, seed=7).all() == [31, 32]
    assert [request.expected_history_length for request in runtime.requests["Generate"]] == [2, 5]
    assert runtime.requests["Generate"][1].seed == 7


async def test_an_iteration_that_ended_stays_ended(session: AsyncSession) -> None:
    async with session.turn([1], max_tokens=1) as generation:
        assert [token_id async for token_id in generation] == [2]
        assert [token_id async for token_id in generation] == []
        assert [token_id async for token_id in aiter(generation)] == []
        assert await generation.next_token() is None


async def test_payloads_of_a_newer_runtime_are_passed_over(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    runtime.unusual_responses = [runtime_pb2.GenerateResponse()]
    assert await session.turn([1], max_tokens=1).all() == [2]


async def test_info(session: AsyncSession) -> None:
    await session.append([1, 2])
    assert await session.info() == kakeya.SessionInfo(
        history_length=2,
        kv_live_bytes=2 * BYTES_PER_TOKEN,
        num_inv1_violations=1,
        num_inv2_violations=2,
        idle_seconds=0.5,
        state=SessionState.OPEN,
        reserved_bytes=32_768,
        model="counter",
        worker="scripted",
        epoch=3,
    )


async def test_numpy_arrays_are_token_ids(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    await session.append(numpy.array([5, 6], dtype=numpy.uint32))
    await session.append(tuple(numpy.array([7])))
    assert [list(request.token_ids) for request in runtime.requests["AppendTokens"]] == [[5, 6], [7]]


@pytest.mark.parametrize("token_id", [-1, 2**32])
async def test_an_id_of_no_vocabulary_is_refused_before_it_is_sent(
    session: AsyncSession, runtime: ScriptedRuntime, token_id: int
) -> None:
    with pytest.raises(kakeya.TokenOutOfVocabulary, match=f"token_ids: {token_id}") as raised:
        await session.append([1, token_id])
    assert raised.value.metadata == {"field": "token_ids"}
    with pytest.raises(kakeya.TokenOutOfVocabulary):
        session.turn([token_id], max_tokens=1)
    assert not runtime.requests["AppendTokens"]


@pytest.mark.parametrize("token_ids", ["text", [1.5], [[1, 2]], 7, None])
async def test_what_is_no_id_is_refused(session: AsyncSession, token_ids: object) -> None:
    with pytest.raises(kakeya.InvalidField, match="not a sequence of integers"):
        await session.append(token_ids)  # type: ignore[arg-type]  # that is the test


async def test_a_value_that_does_not_fit_its_field_is_refused(client: AsyncClient, session: AsyncSession) -> None:
    with pytest.raises(kakeya.InvalidField, match="max_tokens") as raised:
        session.generate(max_tokens=-1)
    assert raised.value.metadata == {"field": "max_tokens"}
    with pytest.raises(kakeya.InvalidField, match="eos_token_ids"):
        await client.create_session(eos_token_ids=["</s>"])  # type: ignore[list-item]  # that is the test
    with pytest.raises(kakeya.InvalidField, match="ttl_seconds"):
        await client.create_session(ttl_seconds=2**32)


async def test_leaving_a_session_closes_it(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    async with await client.create_session() as session:
        await session.append([1, 2])
    assert runtime.sessions == {}
    assert await session.close() == 2
    assert len(runtime.requests["CloseSession"]) == 1


async def test_leaving_a_session_by_an_exception_closes_it(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    with pytest.raises(ZeroDivisionError):
        async with await client.create_session():
            raise ZeroDivisionError
    assert runtime.sessions == {}


async def test_closing_a_session_that_is_gone_is_no_error(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    async with await client.create_session() as session:
        runtime.sessions.clear()
    assert await session.close() is None


async def test_a_failure_to_close_is_not_hidden(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    runtime.before["CloseSession"].append(fails("INTERNAL"))
    with pytest.raises(kakeya.Internal):
        async with await client.create_session():
            pass


async def test_a_failure_to_close_does_not_hide_the_exception_before_it(
    client: AsyncClient, runtime: ScriptedRuntime
) -> None:
    runtime.before["CloseSession"].append(fails("INTERNAL"))
    with pytest.raises(ZeroDivisionError) as raised:
        async with await client.create_session():
            raise ZeroDivisionError
    assert raised.value.__notes__ == ["closing the session failed too: Internal: scripted INTERNAL"]


async def test_attaching_reads_the_length_before_the_first_operation(
    client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    await session.append([1, 2, 3])
    attached = client.session(session.id)
    assert (attached.history_length, attached.model) == (None, None)
    await attached.append([4])
    assert runtime.requests["AppendTokens"][-1].expected_history_length == 3
    assert attached.history_length == 4


async def test_without_check_history_no_length_is_sent(runtime: ScriptedRuntime) -> None:
    async with AsyncClient(runtime.address, check_history=False) as client:
        session = await client.create_session()
        await session.append([1])
        await client.session(session.id).turn([2], max_tokens=1).all()
    assert not runtime.requests["GetSessionInfo"]
    operations = runtime.requests["AppendTokens"] + runtime.requests["Generate"]
    assert [request.HasField("expected_history_length") for request in operations] == [False] * 3


async def test_a_second_writer_is_noticed_and_then_respected(client: AsyncClient, session: AsyncSession) -> None:
    await session.append([1])
    await client.session(session.id).append([2])
    with pytest.raises(kakeya.HistoryLengthMismatch):
        await session.append([3])
    assert session.history_length is None
    assert (await session.append([3])).history_length == 3


async def test_a_closed_client_says_so(runtime: ScriptedRuntime) -> None:
    async with AsyncClient(runtime.address) as client:
        session = await client.create_session()
    await client.close()
    with pytest.raises(RuntimeError, match="the client is closed"):
        await session.info()
    with pytest.raises(RuntimeError, match="the client is closed"):
        await session.generate(max_tokens=1).all()


async def test_a_client_that_was_never_used_closes(runtime: ScriptedRuntime) -> None:
    async with AsyncClient(runtime.address):
        pass
    assert not runtime.requests
