"""Turns at a place of a session: in the session itself where it is idle there, else in a fork."""

import grpc
import pytest

import kakeya
from kakeya import AsyncClient, AsyncSession
from tests.unit.sdk.cuttable_link import CuttableLink
from tests.unit.sdk.scripted_runtime import FINGERPRINT, ScriptedRuntime, fails, fails_plainly, stalls


async def test_where_it_ends_the_session_itself_goes_on(
    client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    await session.append([1, 2])
    runtime.calls.clear()
    generation = client.turn_at(session.id, 2, [5], max_tokens=2, temperature=0.5)
    assert generation.session is None
    assert await generation.all() == [6, 7]
    assert generation.session is not None
    assert (generation.session.id, generation.session.history_length) == (session.id, 5)
    assert (generation.session.fingerprint, generation.appended is not None) == (FINGERPRINT, True)
    (turn,) = runtime.requests["Turn"]
    assert (turn.session.session_id, turn.session.boundary) == (session.id, 2)
    assert turn.session.request_id
    assert not turn.session.HasField("expected_history_length")
    assert (turn.generate.temperature, turn.generate.session_id) == (0.5, "")
    assert await generation.session.turn([9], max_tokens=1).all() == [10]
    assert runtime.calls == ["Turn", "Turn"]


async def test_elsewhere_a_fork_does(client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime) -> None:
    await session.append([1, 2, 3])
    generation = client.turn_at(session.id, 2, [], max_tokens=1)
    assert await generation.all() == [3]
    assert generation.session is not None
    assert generation.session.id != session.id
    assert runtime.sessions[generation.session.id].history == [1, 2, 3]
    assert await generation.session.turn([7], max_tokens=1).all() == [8]
    assert runtime.sessions[session.id].history == [1, 2, 3]


async def test_a_place_that_is_gone(client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime) -> None:
    await session.append([1, 2])
    with pytest.raises(kakeya.BoundaryNotReachable):
        await client.turn_at(session.id, 3, [5], max_tokens=1).all()
    with pytest.raises(kakeya.SessionNotFound):
        await client.turn_at("counter.9", 3, [5], max_tokens=1).all()
    assert not runtime.requests["CloseSession"]


async def test_a_value_that_does_not_fit(client: AsyncClient) -> None:
    with pytest.raises(kakeya.InvalidField):
        client.turn_at("counter.0", -1, [5], max_tokens=1)
    with pytest.raises(TypeError, match=r"turn_at\(\) has no label"):
        client.turn_at("counter.0", 1, [5], max_tokens=1, label="mine")  # type: ignore[call-arg]  # that is the point


@pytest.mark.parametrize("boundary", [2, 1])
@pytest.mark.parametrize("part", ["Turn", "AppendTokens"])
async def test_a_broken_connection_is_gone_on_from(
    runtime: ScriptedRuntime, link: CuttableLink, boundary: int, part: str
) -> None:
    async with AsyncClient(link.address) as client:
        session = await client.create_session()
        await session.append([1, 2])
        (runtime.after if part == "AppendTokens" else runtime.before)[part].append(lambda _: link.cut())
        generation = client.turn_at(session.id, boundary, [5], max_tokens=2)
        assert await generation.all() == [6, 7]
        assert len(runtime.sessions) == 3 - boundary
        assert generation.session is not None
        assert runtime.sessions[generation.session.id].history == [*[1, 2][:boundary], 5, 6, 7]


@pytest.mark.parametrize("boundary", [2, 1])
async def test_what_nobody_heard_of_is_given_up(
    client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime, boundary: int
) -> None:
    """A fork is closed, if there is one; the session never is."""
    await session.append([1, 2])
    runtime.before["Turn"].append(fails_plainly(grpc.StatusCode.DEADLINE_EXCEEDED))
    with pytest.raises(kakeya.DeadlineExceeded):
        await client.turn_at(session.id, boundary, [5], max_tokens=1).all()
    await client.close()  # waits for what it has to tell yet
    assert runtime.requests["CloseSession"][0].request_id == runtime.requests["Turn"][0].session.request_id
    assert list(runtime.sessions) == [session.id]


async def test_a_fork_without_anything_new_is_given_up(
    client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    await session.append([1, 2])
    for boundary in (1, 2):
        runtime.before["AppendTokens"].append(fails("WORKER_LOST"))
        with pytest.raises(kakeya.WorkerLost):
            await client.turn_at(session.id, boundary, [5], max_tokens=1).all()
    await client.close()  # waits for what it has to tell yet
    assert len(runtime.requests["CloseSession"]) == 1
    assert list(runtime.sessions) == [session.id]


async def test_an_older_runtime(client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime) -> None:
    await session.append([1, 2])
    runtime.before["Turn"].append(fails_plainly(grpc.StatusCode.UNIMPLEMENTED))
    with pytest.raises(kakeya.RpcFailed, match="has no turns at a place"):
        await client.turn_at(session.id, 2, [5], max_tokens=1).all()
    assert runtime.sessions[session.id].history == [1, 2]


async def test_a_length_that_is_known_is_not_asked_for(
    client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    await session.append([1, 2])
    runtime.calls.clear()
    await client.session(session.id, history_length=2).rewind(1)
    with pytest.raises(kakeya.HistoryLengthMismatch):
        await client.session(session.id, history_length=2).append([3])
    assert runtime.calls == ["RewindSession", "AppendTokens"]


async def test_equal_request_ids_get_one_session(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    first, second = [await client.create_session(request_id="mine") for _ in range(2)]
    assert first.id == second.id
    runtime.before["CreateSession"].append(stalls)
    with pytest.raises(kakeya.DeadlineExceeded):
        await client.create_session(request_id="mine", timeout_seconds=0.1)
    await client.close()
    assert not runtime.requests["CloseSession"], "it is not this call's alone"
