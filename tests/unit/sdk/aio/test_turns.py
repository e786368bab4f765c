"""Turns: one call each, in a session that is there or in a new one."""

import inspect
import threading

import grpc
import pytest

import kakeya
from kakeya import AsyncClient, AsyncSession
from kakeya._async.options import SessionOptions
from tests.unit.sdk.cuttable_link import CuttableLink
from tests.unit.sdk.scripted_runtime import FINGERPRINT, ScriptedRuntime, fails, fails_plainly, stalls


async def test_a_turn_is_one_call(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    generation = session.turn([1, 2], max_tokens=2, seed=7)
    assert await generation.all() == [3, 4]
    assert generation.session is session
    assert generation.appended is not None
    assert (generation.appended.history_length, session.history_length) == (2, 4)
    (turn,) = runtime.requests["Turn"]
    assert turn.session.session_id == session.id
    assert (turn.session.expected_history_length, turn.generate.seed) == (0, 7)
    assert not turn.generate.session_id
    assert runtime.calls == ["CreateSession", "Turn"]


async def test_one_in_a_new_session_is_one_call(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    generation = client.turn(
        [1, 2], max_tokens=3, temperature=0.5, logprobs=1, eos_token_ids=[4], label="mine", sink=2, on_overflow="refuse"
    )
    assert generation.session is None
    assert await generation.all() == [3, 4]
    assert len(generation.details) == 2
    assert generation.session is not None
    assert (generation.session.fingerprint, generation.session.history_length) == (FINGERPRINT, 4)
    (turn,) = runtime.requests["Turn"]
    assert (turn.create.client_label, turn.create.sink, turn.create.ephemeral) == ("mine", 2, True)
    assert turn.generate.temperature == 0.5
    assert not runtime.sessions
    assert await generation.session.close() == 4
    assert runtime.calls == ["Turn"]


async def test_a_session_that_is_to_stay_goes_on(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    generation = client.turn([1], max_tokens=1, ephemeral=False)
    assert await generation.all() == [2]
    assert generation.session is not None
    async with generation.session as session:
        assert await session.turn([7], max_tokens=1).all() == [8]
        assert runtime.requests["Turn"][-1].session.expected_history_length == 2
    assert not runtime.sessions


async def test_a_turn_begins_with_its_session(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    """Which is told before its tokens are appended."""
    appends = threading.Event()
    runtime.before["AppendTokens"].append(lambda context: (appends.wait(), None)[1])
    generation = client.turn([1], max_tokens=1)
    await generation.begin()
    assert generation.session is not None
    assert generation.appended is None
    appends.set()
    await generation.begin()
    assert await generation.all() == [2]


async def test_one_without_tokens_goes_on_from_the_history(session: AsyncSession) -> None:
    await session.append([5])
    assert await session.turn([], max_tokens=1).all() == [6]


async def test_one_in_a_fork(client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime) -> None:
    await session.append([1, 2, 3])
    assert await client.turn([9], max_tokens=1, fork_from=session).all() == [10]
    assert runtime.requests["Turn"][0].create.fork_from.boundary == 3
    assert runtime.sessions[session.id].history == [1, 2, 3]


async def test_what_is_refused_changes_nothing(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    session = await client.create_session()
    for token_ids, max_tokens, error in (([1000], 1, kakeya.TokenOutOfVocabulary), ([1], 0, kakeya.InvalidField)):
        with pytest.raises(error):
            await session.turn(token_ids, max_tokens=max_tokens).all()
        generation = client.turn(token_ids, max_tokens=max_tokens)
        with pytest.raises(error):
            await generation.begin()
        assert generation.session is None
    assert runtime.sessions[session.id].history == []
    assert list(runtime.sessions) == [session.id]
    assert not runtime.requests["CloseSession"]


async def test_what_is_no_option_is_refused_at_once(client: AsyncClient) -> None:
    with pytest.raises(TypeError, match=r"turn\(\) has no sinks, temprature"):
        client.turn([1], max_tokens=1, temprature=1.0, sinks=4)  # type: ignore[call-arg]  # that is the point
    with pytest.raises(TypeError, match=r"turn\(\) has no sink$"):
        client.session("counter.0").turn([1], max_tokens=1, sink=4)  # type: ignore[call-arg]  # as above
    with pytest.raises(kakeya.InvalidField, match="sink"):
        client.turn([1], max_tokens=1, sink=-1)
    with pytest.raises(kakeya.InvalidField, match="top_k"):
        client.turn([1], max_tokens=1, top_k=-1)


def test_the_options_are_those_of_sessions() -> None:
    of_turns = {"timeout_seconds", "ephemeral", "self"}
    opening = inspect.signature(AsyncClient.create_session).parameters.keys()
    assert SessionOptions.__annotations__.keys() == opening - of_turns


async def test_a_second_writer_is_noticed(client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime) -> None:
    await session.append([1])
    await client.session(session.id).append([2])
    with pytest.raises(kakeya.HistoryLengthMismatch):
        await session.turn([3], max_tokens=1).all()
    assert runtime.sessions[session.id].history == [1, 2]
    assert await session.turn([3], max_tokens=1).all() == [4]


# A connection that breaks


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("moment", ["before Turn", "before AppendTokens", "after AppendTokens", "before Generate"])
async def test_a_turn_that_got_lost_takes_place_once(
    runtime: ScriptedRuntime, link: CuttableLink, moment: str, is_new: bool
) -> None:
    faults, _, method = moment.partition(" ")
    getattr(runtime, faults)[method].append(lambda _: link.cut())
    async with AsyncClient(link.address) as client:
        if is_new:
            generation = client.turn([1, 2], max_tokens=3, ephemeral=False)
        else:
            generation = (await client.create_session()).turn([1, 2], max_tokens=3)
        assert await generation.all() == [3, 4, 5]
    assert generation.done is not None
    assert (generation.done.num_tokens, generation.done.history_length) == (3, 5)
    (session,) = runtime.sessions.values()
    assert session.history == [1, 2, 3, 4, 5]
    turns = runtime.requests["Turn"]
    assert len({(turn.generate.op_id, turn.create.request_id) for turn in turns}) == 1
    assert len({turn.session.expected_history_length for turn in turns}) == 1


async def test_one_in_a_new_session_that_got_lost_makes_one_session(
    runtime: ScriptedRuntime, link: CuttableLink
) -> None:
    runtime.after["CreateSession"].append(lambda _: link.cut())
    async with AsyncClient(link.address) as client:
        assert await client.turn([1], max_tokens=1, ephemeral=False).all() == [2]
    assert len(runtime.sessions) == 1
    assert len(runtime.requests["Turn"]) == 2


@pytest.mark.parametrize("method", ["Turn", "AppendTokens"])
@pytest.mark.parametrize("is_checked", [False, True])
async def test_without_a_length_or_retries_none_is_sent_twice(
    runtime: ScriptedRuntime, link: CuttableLink, is_checked: bool, method: str
) -> None:
    runtime.before[method].append(lambda _: link.cut())
    async with AsyncClient(link.address, check_history=is_checked, max_attempts=1 if is_checked else 5) as client:
        session = await client.create_session()
        with pytest.raises(kakeya.ConnectionFailed):
            await session.turn([1], max_tokens=1).all()
    assert len(runtime.requests["Turn"]) == 1


async def test_one_that_may_not_have_been_stopped_is_told_apart(
    client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    """As where the router that it was sent to shuts down."""
    runtime.before["Turn"] += [fails("DRAINING"), fails("TOO_MANY_CALLS")]
    assert await session.turn([1], max_tokens=1).all() == [2]
    runtime.before["Turn"].append(fails("WORKER_LOST"))
    with pytest.raises(kakeya.WorkerLost):
        await session.turn([1], max_tokens=1).all()
    assert len(runtime.requests["Turn"]) == 4


# What is left


@pytest.mark.parametrize("method", ["CreateSession", "AppendTokens", "Generate"])
async def test_one_whose_answer_never_came_leaves_nothing(runtime: ScriptedRuntime, method: str) -> None:
    runtime.before[method].append(fails_plainly(grpc.StatusCode.DEADLINE_EXCEEDED))
    async with AsyncClient(runtime.address) as client:
        with pytest.raises(kakeya.DeadlineExceeded):
            await client.turn([1], max_tokens=1).all()
    assert not runtime.sessions
    (given_up,) = runtime.requests["CloseSession"]
    assert given_up.request_id == runtime.requests["Turn"][0].create.request_id


async def test_the_session_has_a_timeout_of_its_own(runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"].append(stalls)
    async with AsyncClient(runtime.address) as client:
        with pytest.raises(kakeya.DeadlineExceeded, match=r"no answer within 0\.\d+ s"):
            await client.turn([1], max_tokens=1, open_timeout_seconds=0.2).all()
        assert await client.turn([1], max_tokens=1, open_timeout_seconds=60).all() == [2]
    assert not runtime.sessions


async def test_leaving_it_closes_its_session(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    runtime.hold_after = 1
    async with client.turn([1], max_tokens=9) as generation:
        assert await generation.next_token() == 2
    runtime.wait_for(lambda: not runtime.sessions)
    assert generation.done is None


async def test_a_failure_leaves_what_is_to_stay(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    runtime.after["Generate"].append(fails("WORKER_LOST"))
    generation = client.turn([1], max_tokens=1, ephemeral=False)
    with pytest.raises(kakeya.WorkerLost):
        await generation.all()
    assert generation.session is not None
    assert list(runtime.sessions) == [generation.session.id]


async def test_waiting_for_capacity(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    runtime.before["CreateSession"] += [fails("NO_CAPACITY", retry_after_seconds=0.1) for _ in range(3)]
    with pytest.raises(kakeya.NoCapacity):
        await client.turn([1], max_tokens=1).all()
    assert await client.turn([1], max_tokens=1, wait_for_capacity_seconds=20).all() == [2]
    assert len(runtime.requests["Turn"]) == 4


# A runtime of an older version


async def test_an_older_runtime_is_asked_once(runtime: ScriptedRuntime) -> None:
    runtime.has_turn = False
    async with AsyncClient(runtime.address) as client:
        async with await client.create_session() as session:
            assert await session.turn([1, 2], max_tokens=2).all() == [3, 4]
            assert await session.turn([7], max_tokens=1).all() == [8]
        generation = client.with_api_key("another").turn([5], max_tokens=1)
        assert await generation.all() == [6]
    assert runtime.calls.count("Turn") == 1
    assert [request.expected_history_length for request in runtime.requests["AppendTokens"]] == [0, 4, 0]
    assert [request.expected_history_length for request in runtime.requests["Generate"]] == [2, 5, 1]
    assert generation.appended is not None
    assert generation.appended.history_length == 1
    assert generation.session is not None
    assert not runtime.sessions
    assert not runtime.requests["GetSessionInfo"]


async def test_what_fails_at_an_older_runtime_leaves_nothing(runtime: ScriptedRuntime) -> None:
    runtime.has_turn = False
    runtime.before["CreateSession"].append(fails("NO_CAPACITY"))
    async with AsyncClient(runtime.address) as client:
        with pytest.raises(kakeya.NoCapacity):
            await client.turn([1], max_tokens=1).all()
        runtime.before["AppendTokens"].append(fails("WORKER_LOST"))
        with pytest.raises(kakeya.WorkerLost):
            await client.turn([1], max_tokens=1, timeout_seconds=60).all()
    assert not runtime.sessions
    (given_up,) = runtime.requests["CloseSession"]
    assert given_up.request_id == runtime.requests["CreateSession"][-1].request_id


async def test_other_failures_do_not_make_a_runtime_an_older_one(
    session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    runtime.before["Turn"].append(fails_plainly(grpc.StatusCode.INTERNAL))
    with pytest.raises(kakeya.RpcFailed):
        await session.turn([1], max_tokens=1).all()
    assert await session.turn([1], max_tokens=1).all() == [2]
    assert len(runtime.requests["Turn"]) == 2


async def test_events_of_a_newer_runtime_are_passed_over(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    runtime.has_unusual_events = True
    assert await session.turn([1], max_tokens=1).all() == [2]
