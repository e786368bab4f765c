"""Generate: the stream's order, what `done` says, and what is refused."""

import asyncio
import json
from typing import Any

import pytest

from kakeya_shared.contract.history_digest import EMPTY_HISTORY, extended_digest
from kakeya_shared.errors.tree import EmptyHistory, HistoryLengthMismatch, InvalidField, TokenOutOfVocabulary
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import verifier_pb2 as worker_api
from tests.unit.router.fake_worker import BYTES_PER_TOKEN, EOS, EVERY_FEATURE, SINK, VOCAB_SIZE, WINDOW, FakeWorker
from tests.unit.router.stack import Client, Stack, eventually


@pytest.fixture
async def worker(stack: Stack, client: Client) -> FakeWorker:
    """It can all that today's can."""
    return await stack.worker(client, features=EVERY_FEATURE)


def payloads(responses: list[api.GenerateResponse]) -> list[str]:
    return [str(response.WhichOneof("payload")) for response in responses]


async def test_tokens_then_done(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2, 3])
    call = client.generating(session_id, 5, seed=11)
    responses = [response async for response in call]
    assert payloads(responses) == ["token_id"] * 5 + ["done"]
    assert [r.token_id for r in responses[:-1]] == worker.lanes[session_id].token_ids[3:]
    done = responses[-1].done
    assert done.stop_reason == api.STOP_REASON_MAX_TOKENS
    assert (done.generated_token_count, done.history_length, done.kv_live_bytes) == (5, 8, 8 * BYTES_PER_TOKEN)
    assert (done.prefill_duration_seconds, done.total_duration_seconds) == (worker.prefill_seconds, 1.5)
    assert (done.seed, done.evicted_token_count) == (11, 0)
    assert (done.drafted_token_count, done.accepted_token_count) == (7, 5)
    assert list(done.retained) == [api.TokenRange(start=0, end=8)]
    assert done.op_id
    assert dict(await call.initial_metadata())["kakeya-op-id"] == done.op_id
    assert (await client.generate(session_id, 17))[-1].done.evicted_token_count == 25 - SINK - WINDOW
    info = await client.info(session_id)
    assert (info.drafted_token_count, info.accepted_token_count) == (2 * 7, 2 * 5)


async def test_the_session_is_free_and_its_record_true_when_done_arrives(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    async for response in client.generating(session_id, 30):
        if response.HasField("done"):
            info = await client.info(session_id)
            assert (info.history_length, info.kv_live_bytes) == (31, (SINK + WINDOW) * BYTES_PER_TOKEN)
            await client.append(session_id, [2])


async def test_a_stream_whose_result_is_there_is_ended_by_the_worker(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client, features=())  # others end with `done`
    worker.ending_seconds = 0.1
    session_id = await client.session()
    await client.append(session_id, [1])
    for _ in range(3):
        assert payloads(await client.generate(session_id, 1)) == ["token_id", "done"]
    assert worker.num_cut_short == 0


async def test_a_stream_that_does_not_end_holds_up_nobody(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client, features=())
    worker.ending_seconds = 1000
    session_id = await client.session()
    await client.append(session_id, [1])
    assert payloads(await client.generate(session_id, 1)) == ["token_id", "done"]
    await eventually(lambda: _was_cut_short(worker))


async def _was_cut_short(worker: FakeWorker) -> bool:
    return worker.num_cut_short == 1


async def test_what_fell_out_of_the_window_is_disclosed_first(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, range(SINK + WINDOW))
    assert payloads(await client.generate(session_id, 2)) == ["token_id"] * 2 + ["done"]
    responses = await client.generate(session_id, 2)
    assert payloads(responses) == ["truncated", "token_id", "token_id", "done"]
    assert responses[0].truncated.dropped_token_count == 2
    assert ranges(responses[0].truncated.retained) == [(0, SINK), (SINK + 2, SINK + WINDOW + 2)]
    end = SINK + WINDOW + 4
    assert ranges(responses[-1].done.retained) == ranges((await client.info(session_id)).retained)
    assert ranges(responses[-1].done.retained) == [(0, SINK), (end - WINDOW, end)]


async def test_what_was_dropped_is_what_the_worker_does_not_retain(stack: Stack, client: Client) -> None:
    """Whatever its policy: here it keeps 3 tokens of 10, as a heartbeat tells."""
    worker = await stack.worker(client, beating=False)
    session_id = await client.session()
    await client.append(session_id, range(10))
    request = worker.heartbeat_request(complete=False)
    del request.lanes[0].retained[:]
    for start, end in ((0, 2), (5, 6)):
        request.lanes[0].retained.add(start=start, end=end)
    await client.registry.Heartbeat(request)
    assert ranges((await client.info(session_id)).retained) == [(0, 2), (5, 6)]
    truncated = (await client.generate(session_id, 1))[0].truncated
    assert (truncated.dropped_token_count, ranges(truncated.retained)) == (7, [(0, 2), (5, 6)])


def ranges(retained: Any) -> list[tuple[int, int]]:
    return [(part.start, part.end) for part in retained]


async def test_a_session_that_refuses_to_forget_ends_where_the_lane_does(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session(on_overflow=api.OVERFLOW_POLICY_REFUSE)
    await client.append(session_id, range(SINK + WINDOW - 2))
    responses = await client.generate(session_id, 5)
    assert payloads(responses) == ["token_id"] * 2 + ["done"]
    for done, num_tokens in ((responses[-1].done, 2), ((await client.generate(session_id, 5))[-1].done, 0)):
        assert (done.stop_reason, done.generated_token_count) == (api.STOP_REASON_TRUNCATED, num_tokens)
        assert (done.history_length, ranges(done.retained)) == (SINK + WINDOW, [(0, SINK + WINDOW)])


async def test_generation_ends_with_a_stop_sequence(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    stops = [api.TokenSequence(token_ids=ids) for ids in ([103, 105], [103, 104])]
    responses = await client.generate(session_id, 50, stop_token_sequences=stops)
    assert [r.token_id for r in responses[:-1]] == [101, 102, 103, 104]
    assert responses[-1].done.stop_reason == api.STOP_REASON_STOP_SEQUENCE


async def test_details_come_with_their_tokens(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    for logprobs in (2, 0):
        *tokens, done = await client.generate(session_id, 3, logprobs=logprobs)
        top = [api.TokenLogprob(token_id=id_, logprob=-1.0 - id_) for id_ in range(logprobs)]
        assert [t.detail for t in tokens] == [api.TokenDetail(logprob=-0.5, top_logprobs=top)] * 3
        assert [t.HasField("detail") for t in tokens] == [True] * 3
        assert not done.HasField("detail")
    assert not any(r.HasField("detail") for r in await client.generate(session_id, 3))


EVERY_PARAMETER: dict[str, Any] = {
    "seed": 11,
    "temperature": 0.5,
    "top_p": 0.75,
    "top_k": 9,
    "min_p": 0.25,
    "presence_penalty": -1.5,
    "frequency_penalty": 1.25,
    "logit_bias": {5: -2.5, 999: 100.0},
    "logprobs": 0,
    "stop_token_sequences": [{"token_ids": [4, 5]}, {"token_ids": [6]}],
    "repetition_penalty": 1.25,
    "min_tokens": 1,
    "ignore_eos": True,
}
NOT_OF_SAMPLING = ("logprobs", "stop_token_sequences", "min_tokens", "ignore_eos")


async def test_every_parameter_reaches_the_worker(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session(eos_token_ids=[EOS])
    await client.append(session_id, [1])
    await client.generate(session_id, 2, **EVERY_PARAMETER)
    sampling = {name: value for name, value in EVERY_PARAMETER.items() if name not in NOT_OF_SAMPLING}
    assert worker.generating == [
        worker_api.GenerateRequest(
            session_id=session_id,
            epoch=1,
            history_length=1,
            max_tokens=2,
            eos_token_ids=[EOS],
            sampling=worker_api.Sampling(**sampling),
            stop_token_sequences=[worker_api.TokenSequence(token_ids=ids) for ids in ([4, 5], [6])],
            logprobs=0,
            acknowledges=True,
            min_tokens=1,
            ignore_eos=True,
            operation_number=2,
            history_digest=extended_digest(EMPTY_HISTORY, [1]),
        )
    ]


async def test_parameters_left_out_do_not_limit_the_worker(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    await client.generate(session_id, 1, seed=3)
    (request,) = worker.generating
    assert request.sampling == worker_api.Sampling(seed=3, top_p=1.0)
    assert not request.HasField("logprobs")
    assert not request.stop_token_sequences


async def test_a_repetition_penalty_of_one_needs_no_worker_that_knows_it(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    await client.generate(session_id, 1, seed=3, repetition_penalty=1.0)
    (request,) = worker.generating
    assert request.sampling == worker_api.Sampling(seed=3, top_p=1.0)


async def test_the_operations_record_has_every_parameter(stack: Stack, client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    worker.flowing.clear()
    generating = asyncio.create_task(client.generate(session_id, 2, **EVERY_PARAMETER))
    await eventually(lambda: _generating(worker))
    record = await stack.redis.hgetall(f"kakeya:{{tiny}}:op:{session_id}")
    assert json.loads(record["parameters"]) == EVERY_PARAMETER | {
        "max_tokens": 2,
        "logit_bias": {"5": -2.5, "999": 100.0},
        "stop_token_sequences": [[4, 5], [6]],
        "grammar": None,
        "reasoning": None,
    }
    worker.flowing.set()
    await generating


async def _generating(worker: FakeWorker) -> int:
    return worker.calls["Generate"]


async def test_generation_ends_with_an_eos_token(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session(eos_token_ids=[900, EOS])
    await client.append(session_id, [1, 2])
    worker.eos_after = 4
    responses = await client.generate(session_id, 50)
    assert [r.token_id for r in responses[:-1]][-1] == EOS
    done = responses[-1].done
    assert (done.stop_reason, done.generated_token_count, done.history_length) == (api.STOP_REASON_EOS, 3, 5)


async def test_a_seed_is_drawn_when_none_is_given(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    seeds = {(await client.generate(session_id, 1))[-1].done.seed for _ in range(3)}
    assert len(seeds) == 3
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_p": float("nan")}, "top_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"min_p": 1.1}, "min_p"),
        ({"min_p": float("nan")}, "min_p"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"presence_penalty": float("nan")}, "presence_penalty"),
        ({"frequency_penalty": -2.1}, "frequency_penalty"),
        ({"frequency_penalty": float("nan")}, "frequency_penalty"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"repetition_penalty": -1.0}, "repetition_penalty"),
        ({"repetition_penalty": 2.1}, "repetition_penalty"),
        ({"repetition_penalty": float("nan")}, "repetition_penalty"),
        ({"max_tokens": 4, "min_tokens": 5}, "min_tokens"),
        ({"logit_bias": {1: float("nan")}}, "logit_bias"),
        ({"logit_bias": {1: float("-inf")}}, "logit_bias"),
        ({"logit_bias": dict.fromkeys(range(1025), 1.0)}, "logit_bias"),
        ({"logprobs": 21}, "logprobs"),
        ({"stop_token_sequences": [{"token_ids": [1]}] * 17}, "stop_token_sequences"),
        ({"stop_token_sequences": [{"token_ids": [1]}, {}]}, "stop_token_sequences"),
        ({"stop_token_sequences": [{"token_ids": [1] * 65}]}, "stop_token_sequences"),
    ],
)
async def test_bad_values_are_refused(client: Client, worker: FakeWorker, fields: dict[str, Any], field: str) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    with pytest.raises(InvalidField) as raised:
        await client.generate(session_id, **fields)
    assert raised.value.metadata["field"] == field
    assert (await client.info(session_id)).history_length == 1
    assert not worker.generating


@pytest.mark.parametrize(
    "fields",
    [
        {"logit_bias": {5: 1.0, VOCAB_SIZE: 1.0}},
        {"stop_token_sequences": [{"token_ids": [1]}, {"token_ids": [2, VOCAB_SIZE]}]},
    ],
)
async def test_a_token_outside_the_vocabulary_is_refused(
    client: Client, worker: FakeWorker, fields: dict[str, Any]
) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    with pytest.raises(TokenOutOfVocabulary) as raised:
        await client.generate(session_id, **fields)
    assert raised.value.metadata == {"field": next(iter(fields)), "vocab_size": str(VOCAB_SIZE)}
    assert not worker.generating


async def test_extreme_values_are_accepted(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    responses = await client.generate(
        session_id,
        1,
        temperature=0,
        top_p=1,
        top_k=5,
        seed=2**64 - 1,
        min_p=1,
        presence_penalty=-2,
        frequency_penalty=2,
        logit_bias=dict.fromkeys(range(VOCAB_SIZE), -3e38),
        logprobs=20,
        stop_token_sequences=[{"token_ids": [VOCAB_SIZE - 1] * 64}] * 16,
        repetition_penalty=2,
        min_tokens=1,
    )
    assert responses[-1].done.seed == 2**64 - 1
    assert len(responses[0].detail.top_logprobs) == 20


async def test_generate_before_any_append_is_refused(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    with pytest.raises(EmptyHistory):
        await client.generate(session_id)
    assert worker.calls["Generate"] == worker.calls["Stop"] == 0
    await client.append(session_id, [1])


async def test_an_unexpected_length_is_aborted(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    with pytest.raises(HistoryLengthMismatch):
        await client.generate(session_id, expected_history_length=1)
    assert payloads(await client.generate(session_id, 1, expected_history_length=2)) == ["token_id", "done"]
