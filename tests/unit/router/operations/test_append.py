"""AppendTokens: what it adds, what it refuses, and when a repetition is harmless."""

import asyncio

import pytest

from kakeya_shared.errors.tree import (
    AppendTooLong,
    HistoryFull,
    HistoryLengthMismatch,
    InvalidField,
    InvariantViolated,
    OperationRunning,
    TokenOutOfVocabulary,
)
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import BYTES_PER_TOKEN, EVERY_FEATURE, SINK, VOCAB_SIZE, WINDOW, FakeWorker
from tests.unit.router.stack import Client, Stack, eventually

PLATEAU = (SINK + WINDOW) * BYTES_PER_TOKEN


@pytest.fixture
async def worker(stack: Stack, client: Client) -> FakeWorker:
    """It can all that today's can."""
    return await stack.worker(client, features=EVERY_FEATURE)


async def test_live_bytes_grow_with_the_history_up_to_the_plateau(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    for length, live in ((10, 10 * BYTES_PER_TOKEN), (20, PLATEAU), (30, PLATEAU)):
        appended = await client.append(session_id, range(length - 10, length))
        assert (appended.history_length, appended.kv_live_bytes) == (length, live)
        assert appended.prefill_duration_seconds == worker.prefill_seconds
        assert appended.retained == (await client.info(session_id)).retained
        info = await client.info(session_id)
        assert (info.history_length, info.kv_live_bytes) == (length, live)
        assert (await client.workers())["worker-a"].kv_live_bytes == live
    assert appended.evicted_token_count == 10
    assert [(part.start, part.end) for part in appended.retained] == [(0, SINK), (30 - WINDOW, 30)]
    assert worker.lanes[session_id].token_ids == list(range(30))


@pytest.mark.parametrize("logprobs", [0, 3])
async def test_what_appended_tokens_are_worth(client: Client, worker: FakeWorker, logprobs: int) -> None:
    """The first of a history has none."""
    session_id = await client.session()
    top = [api.TokenLogprob(token_id=id_, logprob=-1.0 - id_) for id_ in range(logprobs)]
    for token_ids, num_scored in (([1, 2, 3], 2), ([4, 5], 2), ([], 0)):
        appended = await client.append(session_id, token_ids, logprobs=logprobs)
        assert list(appended.logprobs) == [api.TokenDetail(logprob=-0.5, top_logprobs=top)] * num_scored
    assert not (await client.append(session_id, [6])).logprobs


async def test_what_a_repeated_append_is_worth_is_not_computed_anew(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    first, again = [await client.append(session_id, [1, 2, 3], expected_history_length=0, logprobs=0) for _ in range(2)]
    assert (len(first.logprobs), len(again.logprobs), again.history_length) == (2, 0, 3)
    assert worker.calls["Append"] == 1


@pytest.mark.parametrize(
    ("num_tokens", "logprobs", "why"),
    [(1, 21, "at most 20"), (65_536, 2, "in parts"), ((1 << 17) // 21 + 1, 20, "131082 of 6242 tokens")],
)
async def test_more_log_probabilities_than_an_answer_holds_are_refused(
    client: Client, worker: FakeWorker, num_tokens: int, logprobs: int, why: str
) -> None:
    session_id = await client.session()
    with pytest.raises(InvalidField, match=why) as raised:
        await client.append(session_id, [1] * num_tokens, logprobs=logprobs)
    assert raised.value.metadata == {"field": "logprobs"}
    assert not worker.calls["Append"]


async def test_an_empty_append_changes_nothing(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    await asyncio.sleep(0.1)
    appended = await client.append(session_id, [])
    assert (appended.history_length, appended.kv_live_bytes) == (2, 2 * BYTES_PER_TOKEN)
    assert [(part.start, part.end) for part in appended.retained] == [(0, 2)]
    assert worker.calls["Append"] == 1
    assert (await client.info(session_id)).idle_seconds >= 0.1


async def test_a_second_operation_is_aborted_also_an_empty_append(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    worker.flowing.clear()
    appending = asyncio.create_task(client.append(session_id, [1, 2]))
    await eventually(lambda: _called(worker, "Append"))
    for call in (client.append(session_id, [3]), client.append(session_id, []), client.generate(session_id)):
        with pytest.raises(OperationRunning) as raised:
            await call
        assert raised.value.retry_after_seconds
    worker.flowing.set()
    assert (await appending).history_length == 2
    assert (await client.append(session_id, [3])).history_length == 3


async def _called(worker: FakeWorker, method: str) -> int:
    return worker.calls[method]


@pytest.mark.parametrize("token_id", [VOCAB_SIZE, 2**32 - 1])
async def test_a_token_outside_the_vocabulary_changes_nothing(
    client: Client, worker: FakeWorker, token_id: int
) -> None:
    session_id = await client.session()
    with pytest.raises(TokenOutOfVocabulary) as raised:
        await client.append(session_id, [1, token_id])
    assert raised.value.metadata == {"field": "token_ids", "vocab_size": str(VOCAB_SIZE)}
    assert (await client.append(session_id, [1])).history_length == 1


async def test_an_over_long_append_changes_nothing(stack: Stack, worker: FakeWorker) -> None:
    client = await stack.router(max_append_tokens=10)
    session_id = await client.session()
    with pytest.raises(AppendTooLong):
        await client.append(session_id, range(11))
    assert (await client.append(session_id, range(10))).history_length == 10


async def test_an_append_far_above_the_limit_is_still_answered_by_the_router(
    client: Client, worker: FakeWorker
) -> None:
    session_id = await client.session()
    with pytest.raises(AppendTooLong):
        await client.append(session_id, [999] * 2_000_000)


async def test_a_session_that_refuses_to_forget_says_how_much_room_there_is(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session(on_overflow=api.OVERFLOW_POLICY_REFUSE)
    await client.append(session_id, range(15))
    before = await client.info(session_id)
    with pytest.raises(HistoryFull) as raised:
        await client.append(session_id, range(6), expected_history_length=15)
    assert raised.value.metadata == {"room": "5"}
    after = await client.info(session_id)
    assert (after.history_length, after.kv_live_bytes) == (before.history_length, before.kv_live_bytes)
    assert after.retained == before.retained == [api.TokenRange(start=0, end=15)]
    assert after.state == api.SESSION_STATE_OPEN
    appended = await client.append(session_id, range(5), expected_history_length=15)
    assert (appended.history_length, appended.evicted_token_count) == (20, 0)


@pytest.mark.parametrize("policy", [api.OVERFLOW_POLICY_UNSPECIFIED, api.OVERFLOW_POLICY_EVICT])
async def test_other_sessions_forget(client: Client, worker: FakeWorker, policy: api.OverflowPolicy.ValueType) -> None:
    session_id = await client.session(on_overflow=policy)
    assert (await client.append(session_id, range(25))).evicted_token_count == 5
    assert not worker.lanes[session_id].refuses


async def test_an_unexpected_length_is_aborted(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2, 3], expected_history_length=0)
    for expected, token_ids in ((0, [1, 2]), (0, [1, 2, 4]), (1, [2, 3]), (4, [1]), (0, [])):
        with pytest.raises(HistoryLengthMismatch) as raised:
            await client.append(session_id, token_ids, expected_history_length=expected)
        assert raised.value.metadata == {"history_length": "3"}
    assert (await client.append(session_id, [4], expected_history_length=3)).history_length == 4


async def test_a_repeated_append_is_answered_with_the_state_as_it_is(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    first = await client.append(session_id, [1, 2, 3], expected_history_length=0)
    again = await client.append(session_id, [1, 2, 3], expected_history_length=0)
    assert (again.history_length, again.kv_live_bytes) == (first.history_length, first.kv_live_bytes)
    assert worker.lanes[session_id].token_ids == [1, 2, 3]


async def test_after_a_generate_the_append_is_no_repetition(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2, 3], expected_history_length=0)
    await client.generate(session_id, 1)
    with pytest.raises(HistoryLengthMismatch):
        await client.append(session_id, [1, 2, 3], expected_history_length=0)


async def test_a_violated_invariant_fails_the_session_and_frees_its_lane(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2, 3])
    worker.failures["Append"] = [InvariantViolated("lane length", metadata={"invariant": "inv1"})]
    with pytest.raises(InvariantViolated):
        await client.append(session_id, [4])
    info = await client.info(session_id)
    assert (info.state, info.cache_invariant_inv1_violations) == (api.SESSION_STATE_FAILED, 1)
    assert (info.kv_live_bytes, info.reserved_bytes, info.cache_invariant_inv2_violations) == (0, 0, 0)
    ledger = (await client.workers())["worker-a"]
    assert (ledger.reserved_bytes, ledger.kv_live_bytes, ledger.num_sessions) == (0, 0, 0)
    await eventually(lambda: _no_lane(worker))
    for call in (client.append(session_id, [4]), client.append(session_id, []), client.generate(session_id)):
        with pytest.raises(InvariantViolated) as raised:
            await call
        assert raised.value.metadata == {"invariant": "inv1"}
    assert await client.close(session_id) == 4
    assert not await stack.session_keys()
    assert (await client.workers())["worker-a"].reserved_bytes == 0


async def _no_lane(worker: FakeWorker) -> bool:
    return not worker.lanes


async def test_a_position_that_fell_is_a_violation(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2, 3, 4])
    worker.flowing.clear()
    call = client.generating(session_id, 5)
    await eventually(lambda: _called(worker, "Generate"))
    del worker.lanes[session_id].token_ids[2:]
    worker.failures["CloseSession"] = [RuntimeError("a bug")]
    call.cancel()
    info = await eventually(lambda: _failed(client, session_id))
    assert (info.cache_invariant_inv1_violations, info.cache_invariant_inv2_violations) == (0, 1)
    with pytest.raises(InvariantViolated) as raised:
        await client.generate(session_id)
    assert raised.value.metadata == {"invariant": "inv2"}


async def _failed(client: Client, session_id: str) -> api.GetSessionInfoResponse | None:
    info = await client.info(session_id)
    return info if info.state == api.SESSION_STATE_FAILED else None
