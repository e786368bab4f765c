"""Generate: the stream's order, what `done` says, and what is refused."""

import pytest

from kakeya_shared.errors import EmptyHistory, HistoryLengthMismatch, InvalidField
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import BYTES_PER_TOKEN, EOS, SINK, WINDOW, FakeWorker
from tests.unit.router.stack import Client


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
    assert (done.seed, done.evicted_token_count) == (11, 3)
    assert done.op_id
    assert dict(await call.initial_metadata())["kakeya-op-id"] == done.op_id


async def test_the_session_is_free_and_its_record_true_when_done_arrives(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    async for response in client.generating(session_id, 30):
        if response.HasField("done"):
            info = await client.info(session_id)
            assert (info.history_length, info.kv_live_bytes) == (31, (SINK + WINDOW) * BYTES_PER_TOKEN)
            await client.append(session_id, [2])


async def test_what_fell_out_of_the_window_is_disclosed_first(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, range(SINK + WINDOW))
    assert payloads(await client.generate(session_id, 2)) == ["token_id"] * 2 + ["done"]
    responses = await client.generate(session_id, 2)
    assert payloads(responses) == ["truncated", "token_id", "token_id", "done"]
    assert responses[0].truncated.dropped_token_count == 2


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
    ],
)
async def test_bad_values_are_refused(client: Client, worker: FakeWorker, fields: dict[str, float], field: str) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    with pytest.raises(InvalidField) as raised:
        await client.generate(session_id, **fields)  # type: ignore[arg-type]  # max_tokens is an int in its row
    assert raised.value.metadata["field"] == field
    assert (await client.info(session_id)).history_length == 1


async def test_extreme_values_are_accepted(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1])
    responses = await client.generate(session_id, 1, temperature=0, top_p=1, top_k=5, seed=2**64 - 1)
    assert responses[-1].done.seed == 2**64 - 1


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
