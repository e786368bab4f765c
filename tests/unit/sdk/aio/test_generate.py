"""Generate and turn: what is sent, and what comes back."""

from typing import Any

import numpy
import pytest

import kakeya
from kakeya import AsyncClient, AsyncSession, Grammar, Reasoning, StopReason, TokenDetail, Truncation
from kakeya_stubs.v1 import runtime_pb2
from tests.unit.sdk.scripted_runtime import (
    BYTES_PER_TOKEN,
    SINK,
    WINDOW,
    ScriptedRuntime,
)


async def test_generate_yields_tokens_and_then_its_result(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    await session.append([10])
    async with session.generate(max_tokens=3, temperature=0.5, top_p=0.75, top_k=4, seed=9) as generation:
        assert generation.done is None
        assert generation.op_id == "op-1"
        assert [token_id async for token_id in generation] == [11, 12, 13]
    assert generation.truncated is None
    assert generation.appended is None
    assert generation.details == []
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
        retained=(range(4),),
    )
    assert session.history_length == 4
    request = runtime.requests["Generate"][0]
    assert (request.temperature, request.top_p, request.top_k, request.seed) == (0.5, 0.75, 4, 9)
    assert request.expected_history_length == 1


async def test_generate_and_turn_send_every_option(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    options: dict[str, Any] = {
        "max_tokens": 3,
        "temperature": 0.5,
        "top_p": 0.75,
        "top_k": 4,
        "min_p": 0.25,
        "presence_penalty": -1.5,
        "frequency_penalty": 1.25,
        "logit_bias": {numpy.int64(5): numpy.float32(-2.5), 6: 1},
        "seed": 9,
        "stop_token_sequences": [numpy.array([1, 2]), [3]],
        "logprobs": 0,
        "repetition_penalty": 1.25,
        "min_tokens": 2,
        "ignore_eos": True,
        "grammar": Grammar.choice(["yes", "no"]),
        "reasoning": Reasoning([7]),
    }
    await session.turn([10], **options).all()
    await session.generate(**options).all()
    for request, length in zip(runtime.requests["Generate"], (1, 4), strict=True):
        assert request == runtime_pb2.GenerateRequest(
            session_id=session.id,
            expected_history_length=length,
            max_tokens=3,
            temperature=0.5,
            top_p=0.75,
            top_k=4,
            min_p=0.25,
            presence_penalty=-1.5,
            frequency_penalty=1.25,
            logit_bias={5: -2.5, 6: 1.0},
            seed=9,
            stop_token_sequences=[runtime_pb2.TokenSequence(token_ids=ids) for ids in ([1, 2], [3])],
            logprobs=0,
            repetition_penalty=1.25,
            min_tokens=2,
            ignore_eos=True,
            grammar=runtime_pb2.Grammar(choice=runtime_pb2.Grammar.Choice(texts=["yes", "no"])),
            reasoning=runtime_pb2.Reasoning(end_token_ids=[7]),
            op_id=request.op_id,
        )
    assert len({request.op_id for request in runtime.requests["Generate"]}) == 2


async def test_options_of_generate_left_out_stay_unset(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    await session.append([10])
    assert await session.generate(max_tokens=1).all() == [11]
    (request,) = runtime.requests["Generate"]
    assert len(request.op_id) == 16
    assert request == runtime_pb2.GenerateRequest(
        session_id=session.id, max_tokens=1, expected_history_length=1, op_id=request.op_id
    )


async def test_details_come_with_the_tokens(session: AsyncSession) -> None:
    expected = [TokenDetail(token_id=id_, logprob=-0.5, top_logprobs={7: -1.0, 6: -2.0}) for id_ in (11, 12)]
    async with session.turn([10], max_tokens=2, logprobs=2) as generation:
        assert [(token_id, generation.details[-1]) async for token_id in generation] == [
            (detail.token_id, detail) for detail in expected
        ]
    assert generation.details == expected
    assert list(generation.details[0].top_logprobs) == [7, 6]  # descending
    alone = session.turn([10], max_tokens=1, logprobs=0)
    assert (await alone.all(), alone.details) == ([11], [TokenDetail(11, -0.5, {})])


async def test_a_token_whose_probability_nobody_knows_any_more(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    runtime.unusual_responses = [runtime_pb2.GenerateResponse(token_id=9)]
    generation = session.turn([10], max_tokens=1, logprobs=1)
    assert await generation.all() == [9, 11]
    assert generation.details == [TokenDetail(9, None, {}), TokenDetail(11, -0.5, {7: -1.0})]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (runtime_pb2.STOP_REASON_TRUNCATED, StopReason.TRUNCATED),
        (runtime_pb2.STOP_REASON_STOP_SEQUENCE, StopReason.STOP_SEQUENCE),
    ],
)
async def test_a_generation_may_end_without_a_token(
    session: AsyncSession, runtime: ScriptedRuntime, reason: runtime_pb2.StopReason.ValueType, expected: StopReason
) -> None:
    done = runtime_pb2.GenerateDone(stop_reason=reason, history_length=1)
    runtime.unusual_responses = [runtime_pb2.GenerateResponse(done=done)]
    generation = session.turn([1], max_tokens=1)
    assert await generation.all() == []
    assert generation.done is not None
    assert generation.done.stop_reason is expected


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
            assert generation.truncated == Truncation(3, (range(SINK), range(SINK + 3, SINK + WINDOW + 3)))
    assert generation.done is not None
    assert generation.done.retained == (range(SINK), range(SINK + 4, SINK + WINDOW + 4))


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
