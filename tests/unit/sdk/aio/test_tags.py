"""Tags: places of a session by which it is found again."""

from typing import Any

import pytest

import kakeya
from kakeya import AsyncClient, AsyncSession
from kakeya_stubs.v1 import runtime_pb2 as pb
from tests.unit.sdk.cuttable_link import CuttableLink
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

ONE, TWO = bytes([1]) * 32, bytes([2]) * 32


async def test_a_session_is_found_by_its_tag(
    client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime
) -> None:
    answer = session.turn([1, 2], max_tokens=3)
    assert await answer.all() == [3, 4, 5]
    await session.tag("answer_end", 5, [ONE, TWO], op_id=answer.op_id)
    (request,) = runtime.requests["TagTurn"]
    assert (request.session_id, list(request.tags), request.op_id) == (session.id, [ONE, TWO], answer.op_id)
    assert request.place == pb.HistoryPlace(kind=pb.PLACE_KIND_ANSWER_END, history_length=5)
    found = await client.find_session([bytes(32), TWO], model="counter")
    assert found == kakeya.FoundSession(
        id=session.id,
        kind=kakeya.PlaceKind.ANSWER_END,
        place=5,
        tag_index=1,
        is_idle_end=True,
        is_last=True,
        history_length=5,
    )
    assert runtime.requests["FindSession"][0].model == "counter"
    await session.append([3])
    again = await client.find_session([TWO])
    assert again is not None
    assert (again.place, again.is_idle_end, again.history_length) == (5, False, 6)


async def test_one_session_alone_is_looked_at(client: AsyncClient, session: AsyncSession) -> None:
    other = await client.create_session()
    for each in (session, other):
        await each.append([1])
        await each.tag("head", 1, [ONE])
        found = await client.find_session([ONE])
        assert found is not None
        assert found.id == each.id, "of equal tags the latest counts"
    found = await client.find_session([ONE], session_id=session.id)
    assert found is not None
    assert found.id == session.id
    with pytest.raises(kakeya.SessionNotFound):
        await client.find_session([ONE], session_id="counter.9")


async def test_none_is_found(client: AsyncClient) -> None:
    assert await client.find_session([ONE]) is None


async def test_a_head_needs_no_operation(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    await session.append([1, 2])
    await session.tag(kakeya.PlaceKind.HEAD, 2, [ONE])
    assert runtime.requests["TagTurn"][0].op_id == ""
    with pytest.raises(kakeya.BoundaryNotReachable):
        await session.tag("head", 3, [ONE])


async def test_a_kind_that_is_not_known(client: AsyncClient, session: AsyncSession, runtime: ScriptedRuntime) -> None:
    place = pb.HistoryPlace(kind=pb.PlaceKind.ValueType(77), history_length=0)
    runtime.tagged.append((ONE, pb.TagTurnRequest(session_id=session.id, place=place)))
    found = await client.find_session([ONE])
    assert found is not None
    assert found.kind is kakeya.PlaceKind.UNSPECIFIED


@pytest.mark.parametrize(
    ("kind", "length", "tags", "field"),
    [
        ("middle", 1, [ONE], "kind"),
        ("head", -1, [ONE], "history_length"),
        ("head", 1, ONE, "tags"),
        ("head", 1, ["one"], "tags"),
    ],
)
async def test_what_does_not_fit_is_not_sent(
    session: AsyncSession, runtime: ScriptedRuntime, kind: str, length: int, tags: Any, field: str
) -> None:
    with pytest.raises(kakeya.InvalidField) as raised:
        await session.tag(kind, length, tags)
    assert raised.value.metadata["field"] == field
    assert not runtime.requests["TagTurn"]


async def test_both_are_repeated(runtime: ScriptedRuntime, link: CuttableLink) -> None:
    async with AsyncClient(link.address) as client:
        session = await client.create_session()
        await session.append([1])
        runtime.after["TagTurn"].append(lambda _: link.cut())
        await session.tag("head", 1, [ONE])
        runtime.before["FindSession"].append(lambda _: link.cut())
        found = await client.find_session([ONE])
        assert found is not None
        assert found.id == session.id
    assert (runtime.calls.count("TagTurn"), runtime.calls.count("FindSession")) == (2, 2)


async def test_a_rewind_of_what_no_tag_names_alone(session: AsyncSession, runtime: ScriptedRuntime) -> None:
    await session.append([1, 2])
    await session.rewind(1, only_untagged=True)
    await session.append([2])
    with pytest.raises(kakeya.BoundaryNotReachable):
        await session.rewind(0, op_id="another")
    await session.rewind(0)
    asked = [(request.only_untagged, request.op_id) for request in runtime.requests["RewindSession"]]
    assert asked == [(True, ""), (False, "another"), (False, "")]
