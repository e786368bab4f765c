"""Sessions that begin with the history of another."""

from typing import Any

import grpc
import pytest

import kakeya
from kakeya import AsyncClient, AsyncSession
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails, passes


async def test_a_fork_goes_on_from_the_history_of_its_source(
    client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    await session.append([10, 11, 12])
    fork = await client.create_session(fork_from=session, label="fork")
    request = runtime.requests["CreateSession"][-1]
    assert (request.fork_from.session_id, request.fork_from.boundary) == (session.id, 3)
    assert (request.client_label, len(request.request_id)) == ("fork", 32)
    assert (fork.id, fork.history_length) == ("counter.1", 3)
    assert await fork.generate(max_tokens=2).all() == [13, 14]
    assert (await session.append([1])).history_length == 4
    assert [each.expected_history_length for each in runtime.requests["Generate"]] == [3]


async def test_no_fork_is_asked_for_by_itself(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    await client.create_session()
    assert not runtime.requests["CreateSession"][0].HasField("fork_from")


async def test_a_source_may_be_named_by_its_id(
    client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    await session.append([10, 11])
    for boundary in (None, 2):
        fork = await client.create_session(fork_from=session.id, boundary=boundary)
        point = runtime.requests["CreateSession"][-1].fork_from
        assert (point.session_id, point.HasField("boundary"), point.boundary) == (
            session.id,
            bool(boundary),
            boundary or 0,
        )
        assert fork.history_length == 2


async def test_a_fork_may_begin_where_its_source_was(
    client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    await session.append([10, 11, 12])
    for source in (session, session.id):
        fork = await client.create_session(fork_from=source, boundary=2)
        assert runtime.requests["CreateSession"][-1].fork_from.boundary == 2
        assert fork.history_length == 2
        assert await fork.generate(max_tokens=2).all() == [12, 13]
    assert session.history_length == 3


async def test_a_length_that_is_not_known_or_not_checked_is_not_expected(
    client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    await session.append([10, 11])
    async with AsyncClient(runtime.address, check_history=False) as unchecked:
        source = await unchecked.create_session(fork_from=session.id)
        assert source.history_length == 2
        await unchecked.create_session(fork_from=source)
    await client.create_session(fork_from=client.session(session.id))
    assert [request.fork_from.HasField("boundary") for request in runtime.requests["CreateSession"][1:]] == [False] * 3
    runtime.before["CreateSession"].append(fails("BOUNDARY_NOT_REACHABLE", reachable="2"))
    with pytest.raises(kakeya.BoundaryNotReachable):
        await client.create_session(fork_from=session, boundary=0)
    assert runtime.requests["CreateSession"][-1].fork_from.HasField("boundary")


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_runtime_that_cannot_fork_is_told_from_one_that_does(
    client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime, is_known: bool
) -> None:
    await session.append([10, 11])
    runtime.forks = False
    with pytest.raises(kakeya.RpcFailed, match="older version") as raised:
        await client.create_session(fork_from=session if is_known else session.id)
    assert raised.value.status is grpc.StatusCode.UNIMPLEMENTED
    assert list(runtime.sessions) == [session.id]


async def test_a_fork_waits_until_a_cancelled_operation_has_stopped(
    client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    await session.append([1])
    runtime.hold_after, runtime.stop_seconds = 2, 0.3
    async with session.generate(max_tokens=5) as generation:
        async for _ in generation:
            break
    runtime.hold_after = None
    fork = await client.create_session(fork_from=session)
    assert fork.history_length == (await session.info()).history_length
    refused = len(runtime.requests["CreateSession"]) - 2
    assert refused > 0


async def test_an_operation_that_is_not_ours_is_not_waited_for(
    client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    runtime.before["CreateSession"].append(fails("OPERATION_RUNNING", retry_after_seconds=0.2))
    with pytest.raises(kakeya.OperationRunning):
        await client.create_session(fork_from=session)


async def test_an_answer_that_is_lost_is_asked_for_again(
    client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    await session.append([1, 2])
    runtime.after["CreateSession"] += [fails("DRAINING"), passes]
    fork = await client.create_session(fork_from=session)
    assert (fork.id, fork.history_length, len(runtime.sessions)) == ("counter.1", 2, 2)


async def test_a_boundary_that_cannot_be_reached(
    client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    runtime.before["CreateSession"].append(fails("BOUNDARY_NOT_REACHABLE", reachable="7"))
    with pytest.raises(kakeya.BoundaryNotReachable) as raised:
        await client.create_session(fork_from=session)
    assert raised.value.metadata == {"reachable": "7"}


async def test_nonsense_is_refused_before_anything_is_sent(
    client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    nonsense: list[tuple[dict[str, Any], str]] = [({"boundary": 3}, "boundary"), ({"fork_from": 7}, "session_id")]
    nonsense += [({"fork_from": session, "boundary": -1}, "boundary")]
    for fields, field in nonsense:
        with pytest.raises(kakeya.InvalidField) as raised:
            await client.create_session(**fields)
        assert raised.value.metadata == {"field": field}
    assert len(runtime.requests["CreateSession"]) == 1
