"""What a worker does not name is not asked of it: requests that need a feature, in mixed pools."""

import asyncio
from typing import Any

import pytest

from kakeya_shared.contract.features import APPEND_LOGPROBS, GRAMMAR, MASKED_ENDS, REASONING, REPETITION_PENALTY
from kakeya_shared.errors.tree import Draining, InvalidField, NoWorker
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import EVERY_FEATURE, FakeWorker
from tests.unit.router.lanes.test_moving import holds
from tests.unit.router.lapses import be_lost
from tests.unit.router.operations.test_recovery import expected, first_token, token_ids
from tests.unit.router.stack import FORGETFUL, Client, Stack, eventually

MASKED = {"ignore_eos": True}
WORKER = "kakeya:{tiny}:worker:worker-a"
QUEUE, WAITERS = "kakeya:{tiny}:queue", "kakeya:{tiny}:waiters"


@pytest.fixture
async def session_id(client: Client, worker: FakeWorker) -> str:
    """On a worker without features."""
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    return session_id


async def refused(call: Any, feature: str) -> None:
    with pytest.raises(NoWorker, match=feature) as raised:
        await call
    assert raised.value.metadata == {"feature": feature}


@pytest.mark.parametrize(
    ("fields", "feature"),
    [
        ({"repetition_penalty": 1.25}, REPETITION_PENALTY),
        ({"min_tokens": 1}, MASKED_ENDS),
        (MASKED, MASKED_ENDS),
        ({"grammar": api.Grammar(regex="a")}, GRAMMAR),
        ({"reasoning": api.Reasoning(end_token_ids=[5])}, REASONING),
        ({"min_tokens": 1, "repetition_penalty": 0.5}, f"{MASKED_ENDS}, {REPETITION_PENALTY}"),
    ],
)
async def test_a_generate_is_refused_by_name_and_changes_nothing(
    client: Client, worker: FakeWorker, session_id: str, fields: dict[str, Any], feature: str
) -> None:
    before = await client.info(session_id)
    await refused(client.generate(session_id, 3, **fields), feature)
    after = await client.info(session_id)
    assert after.idle_seconds >= before.idle_seconds
    before.ClearField("idle_seconds")
    after.ClearField("idle_seconds")
    assert after == before
    assert not worker.generating
    assert worker.calls["Stop"] == 0
    assert await token_ids(client.generating(session_id, 3, repetition_penalty=1.0)) == expected(2, 5)


async def test_an_append_is_refused_by_name_and_changes_nothing(
    client: Client, worker: FakeWorker, session_id: str
) -> None:
    await refused(client.append(session_id, [3], logprobs=0), APPEND_LOGPROBS)
    assert worker.lanes[session_id].token_ids == [1, 2]
    assert (await client.append(session_id, [3], expected_history_length=2)).history_length == 3


async def test_a_worker_that_names_it_is_asked(stack: Stack, client: Client) -> None:
    worker = await stack.worker(client, features=[MASKED_ENDS])
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    await client.generate(session_id, 3, **MASKED)
    await refused(client.generate(session_id, 3, repetition_penalty=2.0), REPETITION_PENALTY)
    assert len(worker.generating) == 1


async def test_what_a_worker_says_when_it_joins_again_counts(
    stack: Stack, client: Client, worker: FakeWorker, session_id: str
) -> None:
    await client.generate(session_id, 1)  # by now the router has looked at its workers
    await refused(client.generate(session_id, 3, **MASKED), MASKED_ENDS)
    await stack.redis.hdel(WORKER, "features")  # as an older router has left it
    worker.features = [MASKED_ENDS]
    await client.join(worker)
    assert (await client.workers())["worker-a"].features == [MASKED_ENDS]
    assert await token_ids(client.generating(session_id, 3, **MASKED)) == expected(3, 6)


async def test_the_contract_before_is_spoken_too(client: Client, worker: FakeWorker) -> None:
    worker.contract_version, worker.features = 1, []
    await client.join(worker)
    assert (await client.workers())["worker-a"].features == []


@pytest.mark.parametrize("features", [["Masked Ends"], ["a,b"], [""], ["a" * 65], [f"f-{n}" for n in range(65)]])
async def test_names_that_are_none_are_refused(client: Client, worker: FakeWorker, features: list[str]) -> None:
    worker.features = features
    with pytest.raises(InvalidField) as raised:
        await client.join(worker)
    assert raised.value.metadata == {"field": "features"}


async def test_a_parked_session_is_resumed_where_the_feature_is(
    stack: Stack, client: Client, worker: FakeWorker, session_id: str
) -> None:
    await client.park(session_id)
    await refused(client.generate(session_id, 3, **MASKED), MASKED_ENDS)
    able = await stack.worker(client, "worker-b", num_lanes=1, features=[MASKED_ENDS])
    assert await token_ids(client.generating(session_id, 3, **MASKED)) == expected(2, 5)
    assert session_id in able.lanes


async def test_an_answer_goes_on_only_where_the_feature_is(stack: Stack) -> None:
    client = await stack.router(admission="queue")
    dying = await stack.worker(client, features=[MASKED_ENDS])
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    dying.pause_in = 1
    call = client.generating(session_id, 300, **MASKED)
    seen = [await first_token(call)]
    older = await stack.worker(client, "worker-b")
    rest = asyncio.create_task(token_ids(call))
    await be_lost(dying)
    await eventually(lambda: client.session())  # others come to lanes there
    await holds_waiters(stack, 1)
    await holds_no_worker(stack, dying)
    await stack.redis.delete(QUEUE, WAITERS)  # it comes back to the queue, and looks again
    await holds_waiters(stack, 1)
    assert session_id not in older.opening
    await stack.worker(client, "worker-c", features=[MASKED_ENDS, REPETITION_PENALTY])
    assert seen + await rest == expected(2, 302)
    assert not older.generating


async def test_who_waits_for_a_feature_is_in_nobodys_way(stack: Stack) -> None:
    """The queue knows that the waiter cannot use the older worker, which others wait for as well."""
    client = await stack.router(admission="queue", queue_seconds=60)
    older = await stack.worker(client, num_lanes=1)
    able = await stack.worker(client, "worker-b", num_lanes=1, features=[MASKED_ENDS])
    parked = await client.session()
    await client.append(parked, [1, 2])
    await client.park(parked)
    held = [await client.session() for _ in range(2)]
    waiting = asyncio.create_task(token_ids(client.generating(parked, 3, **MASKED)))
    await holds_waiters(stack, 1)
    other = asyncio.create_task(client.session())
    await holds_waiters(stack, 2)
    await client.close(next(each for each in held if each in older.lanes))
    assert await asyncio.wait_for(other, 60) in older.lanes
    assert not waiting.done()
    await client.close(next(each for each in held if each in able.lanes))
    assert await asyncio.wait_for(waiting, 60) == expected(2, 5)


async def holds_no_worker(stack: Stack, worker: FakeWorker) -> None:
    async def is_dropped() -> bool:
        return await stack.redis.zscore("kakeya:{tiny}:workers", worker.worker_id) is None

    await eventually(is_dropped)


async def holds_waiters(stack: Stack, number: int) -> None:
    async def are_there() -> bool:
        return int(await stack.redis.zcard("kakeya:{tiny}:queue")) == number

    await eventually(are_there)


async def test_in_the_middle_it_is_moved_only_to_where_the_feature_is(stack: Stack) -> None:
    """A worker that shuts down begins nothing any more; its lane alone has all of the history."""
    client = await stack.router(**FORGETFUL)
    left = await stack.worker(client, features=[MASKED_ENDS])
    session_id = await client.session()
    for token_id in range(6):
        await client.append(session_id, [token_id])
    older = await stack.worker(client, "worker-b")
    able = await stack.worker(client, "worker-c", num_lanes=1, features=[MASKED_ENDS])
    left.failures["Generate"] = [Draining("the worker is shutting down")]
    assert await token_ids(client.generating(session_id, 3, **MASKED)) == expected(6, 9)
    await holds(lambda: session_id in able.lanes and session_id not in left.lanes)
    assert not older.calls["WriteLane"]


async def test_an_answer_that_goes_on_elsewhere_is_asked_for_as_it_was(stack: Stack) -> None:
    client = await stack.router(admission="queue")
    dying = await stack.worker(client, features=EVERY_FEATURE)
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    dying.pause_in = 1
    call = client.generating(session_id, 300, min_tokens=250, repetition_penalty=1.25, **MASKED)
    seen = [await first_token(call)]
    other = await stack.worker(client, "worker-b", features=EVERY_FEATURE)
    rest = asyncio.create_task(token_ids(call))
    await be_lost(dying)
    assert seen + await rest == expected(2, 302)
    (first,), (second,) = dying.generating, other.generating
    assert list(second.previous_token_ids) == expected(2, 2 + len(second.previous_token_ids))
    for field in ("sampling", "min_tokens", "ignore_eos", "max_tokens"):
        assert getattr(first, field) == getattr(second, field)
    assert (second.min_tokens, second.ignore_eos, second.sampling.repetition_penalty) == (250, True, 1.25)


async def test_an_append_that_is_prefilled_elsewhere_says_no_log_probabilities(stack: Stack) -> None:
    """They may be asked of an append once; its tokens are in the history."""
    client = await stack.router(admission="queue")
    dying = await stack.worker(client, features=EVERY_FEATURE)
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    dying.flowing.clear()
    appending = asyncio.create_task(client.append(session_id, [3, 4], logprobs=1))
    await eventually(lambda: _appends(dying, 2))
    other = await stack.worker(client, "worker-b", features=EVERY_FEATURE)
    await be_lost(dying)
    appended = await asyncio.wait_for(appending, 60)
    assert (appended.history_length, list(appended.logprobs)) == (4, [])
    assert other.lanes[session_id].token_ids == [1, 2, 3, 4]


async def _appends(worker: FakeWorker, number: int) -> bool:
    return worker.calls["Append"] == number
