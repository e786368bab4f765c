"""Turns that look for their session by tags, in one call."""

import grpc
import pytest

import kakeya
from kakeya import AsyncClient, AsyncSession
from tests.unit.sdk.cuttable_link import CuttableLink
from tests.unit.sdk.scripted_runtime import FINGERPRINT, ScriptedRuntime, fails, fails_plainly

ONE, TWO, THREE = (bytes([number]) * 32 for number in (1, 2, 3))


@pytest.fixture
async def place(session: AsyncSession) -> int:
    """Where an answer has ended, with the tag TWO; its beginning has the tag ONE."""
    generation = session.turn([1, 2], max_tokens=2)
    await generation.all()
    await session.tag("answer_start", 2, [ONE], op_id=generation.op_id)
    await session.tag("answer_end", 4, [TWO], op_id=generation.op_id)
    return 4


@pytest.mark.parametrize("num_known", [0, 1])
async def test_it_goes_on_where_it_was_expected(
    client: AsyncClient, session: AsyncSession, place: int, runtime: ScriptedRuntime, num_known: int
) -> None:
    runtime.calls.clear()
    generation = client.turn_found(
        [THREE, TWO], [8, 9], expected={1: num_known}, opens=False, max_tokens=2, start_tags=[THREE], temperature=0.5
    )
    assert (generation.found, generation.session) == (None, None)
    assert await generation.all() == [10, 11]
    assert generation.found is not None
    assert (generation.found.id, generation.found.place, generation.found.tag_index) == (session.id, place, 1)
    assert generation.session is not None
    assert (generation.session.id, generation.session.fingerprint) == (session.id, FINGERPRINT)
    assert runtime.sessions[session.id].history == [1, 2, 3, 4, *[8, 9][num_known:], 10, 11]
    assert generation.op_id == runtime.requests["Turn"][-1].generate.op_id
    assert await generation.session.turn([12], max_tokens=1).all() == [13]
    assert runtime.calls == ["Turn", "Turn"]
    found = await client.find_session([THREE])
    assert found is not None
    assert found.place == place + 2 - num_known


async def test_in_a_new_session_where_nothing_is_found(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    generation = client.turn_found([ONE], [5], expected={}, opens=True, max_tokens=1, label="mine", model="counter")
    assert await generation.all() == [6]
    assert generation.found is None
    assert generation.session is not None
    assert runtime.sessions[generation.session.id].history == [5, 6]
    (turn,) = runtime.requests["Turn"]
    assert (turn.create.client_label, turn.create.ephemeral, turn.search.model) == ("mine", False, "counter")


async def test_elsewhere_nothing_happens(
    client: AsyncClient, session: AsyncSession, place: int, runtime: ScriptedRuntime
) -> None:
    generation = client.turn_found([ONE], [5], expected={}, opens=True, max_tokens=1)
    with pytest.raises(kakeya.FoundElsewhere, match="another place"):
        await generation.all()
    assert generation.found is not None
    assert (generation.found.id, generation.found.place) == (session.id, 2)
    generation = client.turn_found([THREE], [5], expected={0: 1}, opens=False, max_tokens=1)
    with pytest.raises(kakeya.FoundElsewhere, match="nothing"):
        await generation.begin()
    assert generation.found is None
    runtime.sessions[session.id].history.append(9)  # an answer that was cut: it would have to be taken back
    with pytest.raises(kakeya.FoundElsewhere, match="another place"):
        await client.turn_found([TWO], [5], expected={0: 0}, opens=False, max_tokens=1).begin()
    await client.close()
    assert list(runtime.sessions) == [session.id]
    assert not runtime.requests["CloseSession"]


async def test_beside_another_it_is_in_a_fork(
    client: AsyncClient, session: AsyncSession, place: int, runtime: ScriptedRuntime
) -> None:
    runtime.sessions[session.id].running.add("another")
    generation = client.turn_found([TWO], [5], expected={0: 0}, opens=False, max_tokens=1)
    assert await generation.all() == [6]
    assert generation.session is not None
    assert generation.session.id != session.id
    runtime.sessions[session.id].running.clear()


@pytest.mark.parametrize("opens", [True, False])
@pytest.mark.parametrize("part", ["Turn", "FindSession", "AppendTokens"])
async def test_a_broken_connection_is_gone_on_from(
    runtime: ScriptedRuntime, link: CuttableLink, part: str, opens: bool
) -> None:
    async with AsyncClient(link.address) as client:
        session = await client.create_session()
        first = session.turn([1], max_tokens=1)
        await first.all()
        await session.tag("answer_end", 2, [TWO], op_id=first.op_id)
        (runtime.after if part != "Turn" else runtime.before)[part].append(lambda _: link.cut())
        tag = THREE if opens else TWO
        generation = client.turn_found([tag], [5], expected={0: 0}, opens=opens, max_tokens=2)
        assert await generation.all() == [6, 7]
        assert generation.session is not None
        assert (generation.session.id == session.id) == (not opens)
        assert runtime.sessions[generation.session.id].history == [*[1, 2] * (not opens), 5, 6, 7]
        assert len(runtime.sessions) == 1 + opens


@pytest.mark.parametrize("opens", [True, False])
async def test_what_nobody_heard_of_is_given_up(client: AsyncClient, runtime: ScriptedRuntime, opens: bool) -> None:
    runtime.before["Turn"].append(fails_plainly(grpc.StatusCode.DEADLINE_EXCEEDED))
    options = {"opens": opens}
    with pytest.raises(kakeya.DeadlineExceeded):
        await client.turn_found([ONE], [5], expected={0: 0}, max_tokens=1, **options).all()  # type: ignore[arg-type]
    await client.close()  # waits for what it has to tell yet
    (turn,) = runtime.requests["Turn"]
    names = {turn.search.request_id, turn.create.request_id} - {""}
    assert {request.request_id for request in runtime.requests["CloseSession"]} == names
    assert len(names) == 1 + opens


async def test_what_is_refused_leaves_nothing(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    runtime.before["Turn"].append(fails("QUEUE_FULL", part="session"))
    with pytest.raises(kakeya.QueueFull):
        await client.turn_found([ONE], [5], expected={}, opens=True, max_tokens=1).all()
    await client.close()
    assert not runtime.requests["CloseSession"]


async def test_a_runtime_that_passes_over_the_search(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    runtime.has_search = False
    with pytest.raises(kakeya.RpcFailed, match="does not look for the session"):
        await client.turn_found([ONE], [5], expected={}, opens=True, max_tokens=1).all()
    await client.close()
    assert not runtime.sessions


async def test_an_older_runtime(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    runtime.before["Turn"].append(fails_plainly(grpc.StatusCode.UNIMPLEMENTED))
    with pytest.raises(kakeya.RpcFailed, match="does not look for the session"):
        await client.turn_found([ONE], [5], expected={}, opens=True, max_tokens=1).all()
    assert not runtime.sessions


async def test_values_that_do_not_fit(client: AsyncClient) -> None:
    with pytest.raises(kakeya.InvalidField):
        client.turn_found([ONE], [5], expected={0: 2}, opens=False, max_tokens=1)
    with pytest.raises(kakeya.InvalidField):
        client.turn_found([ONE], [5], expected={0: -1}, opens=False, max_tokens=1)
    with pytest.raises(kakeya.InvalidField):
        client.turn_found(ONE, [5], expected={}, opens=False, max_tokens=1)  # type: ignore[arg-type]  # one tag alone
    with pytest.raises(TypeError, match=r"turn_found\(\) has no colour"):
        client.turn_found([ONE], [5], expected={}, opens=True, max_tokens=1, colour=1)  # type: ignore[call-arg]


async def test_the_beginning_of_any_turn_can_have_tags(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    generation = client.turn([1, 2], max_tokens=1, ephemeral=False, start_tags=[ONE])
    await generation.all()
    found = await client.find_session([ONE])
    assert found is not None
    assert (found.kind, found.place) == (kakeya.PlaceKind.ANSWER_START, 2)
    await client.turn_at(found.id, 3, [5], max_tokens=1, start_tags=[TWO]).all()
    found = await client.find_session([TWO])
    assert found is not None
    assert found.place == 4


async def test_what_models_say_of_the_runtime(client: AsyncClient, runtime: ScriptedRuntime) -> None:
    (model, *_) = await client.list_models()
    assert model.features == {"turn-search"}
