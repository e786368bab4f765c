"""A Turn that looks for its session by tags, and gives the place where its answer begins tags, all in one call."""

from typing import Any

import pytest

from kakeya_shared.errors.tree import HistoryFull, InvalidField, NoWorker, TokenOutOfVocabulary
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import FakeWorker
from tests.unit.router.keyed import Keyed
from tests.unit.router.operations.test_recovery import expected as answer_tokens
from tests.unit.router.operations.test_turn import refused
from tests.unit.router.sessions.test_tags import FOUR, ONE, THREE, TWO, Answer, place, tagged
from tests.unit.router.stack import Client, Stack, Turned, answer, turn_request

OP_ID = "mine"
Events = tuple[api.FindSessionResponse, Turned | None]


def searching(
    *tags: bytes,
    expected: dict[int, int] | None = None,
    token_ids: list[int],
    start_tags: tuple[bytes, ...] = (),
    create: dict[str, Any] | None = None,
    op_id: str = OP_ID,
    **fields: Any,
) -> api.TurnRequest:
    request = turn_request(create=create or {}, token_ids=token_ids, op_id=op_id, **fields)
    if create is None:
        request.ClearField("where")
    places = [
        api.ExpectedPlace(tag_index=index, skipped_token_count=skipped) for index, skipped in (expected or {}).items()
    ]
    request.search.CopyFrom(api.TurnSearch(tags=tags, expected=places, request_id="fork"))
    request.start_tags.extend(start_tags)
    return request


async def events(client: Client, request: api.TurnRequest) -> Events:
    """What was found, and the turn, if there was one."""

    async def read() -> list[api.TurnResponse]:
        return [event async for event in client.turning(request)]

    told = await answer(read())
    assert [event.HasField("found") for event in told] == [True, *[False] * (len(told) - 1)]
    return told[0].found, Turned(told) if told[0].HasField("session") else None


@pytest.fixture
async def source(client: Client, worker: FakeWorker) -> Answer:
    """A session with a turn, of which the places have the tags ONE and TWO."""
    return (await tagged(client, await client.session(), (ONE, TWO)))[0]


async def beside(client: Client, source: Answer) -> Any:
    """Another turn that runs behind the source's end, and whose answer begins at THREE: to be cancelled."""
    other = turn_request(source.session_id, [5], 100_000)
    other.start_tags.append(THREE)
    call = client.turning(other)
    for _ in range(3):
        await call.read()
    return call


async def broken_off(client: Client, request: api.TurnRequest, num_heard: int) -> str:
    """The session of a turn whose connection broke behind so many events."""
    call = client.turning(request)
    told = [await call.read() for _ in range(num_heard)]
    call.cancel()
    return str(told[0].session.session_id)


@pytest.mark.parametrize("skipped", [0, 1, 2])
async def test_it_goes_on_where_it_was_expected(client: Client, source: Answer, skipped: int) -> None:
    request = searching(THREE, TWO, expected={0: 0, 1: skipped}, token_ids=[7, 8], start_tags=(FOUR,))
    found, turned = await events(client, request)
    assert place(found) == (source.session_id, "ANSWER_END", source.end)
    assert (found.tag_index, found.is_idle_end) == (1, True)
    assert turned is not None
    assert turned.session.session_id == source.session_id
    start = source.end + 2 - skipped
    assert turned.appended.history_length == start
    assert turned.token_ids == answer_tokens(start, start + 4)
    assert place(await client.find(FOUR)) == (source.session_id, "ANSWER_START", start)


async def test_where_something_else_is_found_nothing_happens(client: Client, source: Answer) -> None:
    found, turned = await events(client, searching(ONE, TWO, expected={1: 0}, token_ids=[7], create={}))
    assert (place(found), turned) == ((source.session_id, "ANSWER_START", source.start), None)
    assert (await client.info(source.session_id)).history_length == source.end


async def test_where_nothing_is_found_it_is_in_a_new_session_or_nowhere(client: Client, source: Answer) -> None:
    found, turned = await events(client, searching(THREE, expected={0: 0}, token_ids=[7]))
    assert (found, turned) == (api.FindSessionResponse(), None)
    request = searching(THREE, token_ids=[7], create={"sink": 2}, start_tags=(FOUR,))
    found, turned = await events(client, request)
    assert turned is not None
    assert (found, turned.session.sink, turned.appended.history_length) == (api.FindSessionResponse(), 2, 1)
    assert place(await client.find(FOUR)) == (turned.session.session_id, "ANSWER_START", 1)


async def test_what_would_have_to_be_taken_back_is_left_to_the_caller(client: Client, source: Answer) -> None:
    await client.append(source.session_id, [9])
    request = searching(TWO, expected={0: 0}, token_ids=[7])
    found, turned = await events(client, request)
    assert (found.history_length, turned) == (source.end + 1, None)


async def test_beside_another_it_is_in_a_fork(client: Client, source: Answer) -> None:
    other = await beside(client, source)
    found, turned = await events(client, searching(TWO, expected={0: 1}, token_ids=[7, 8]))
    assert (found.session_id, found.is_idle_end) == (source.session_id, False)
    assert turned is not None
    assert turned.session.session_id != source.session_id
    assert turned.appended.history_length == source.end + 1
    other.cancel()


async def test_without_an_op_id_it_goes_on_as_well(client: Client, source: Answer) -> None:
    _, turned = await events(client, searching(TWO, expected={0: 0}, token_ids=[7], op_id=""))
    assert turned is not None
    assert turned.session.session_id == source.session_id


async def test_one_that_comes_again_adds_nothing(client: Client, worker: FakeWorker) -> None:
    """As where the connection broke before anything was heard: the session is that of its request, and has the tag."""
    request = searching(THREE, token_ids=[7, 8], create={"request_id": "r"}, start_tags=(FOUR,))
    _, turned = await events(client, request)
    request.ClearField("search")
    again = await client.turn(request)
    assert turned is not None
    assert again.session.session_id == turned.session.session_id
    assert again.token_ids == turned.token_ids
    assert len(worker.lanes) == 1
    assert place(await client.find(FOUR)) == (again.session.session_id, "ANSWER_START", 2)


async def test_one_that_comes_again_goes_on_where_it_was(client: Client, source: Answer) -> None:
    """As where the connection broke in its answer, before anything was heard."""
    request = searching(TWO, expected={0: 1}, token_ids=[7, 8])
    await broken_off(client, request, 4)
    found, turned = await events(client, request)
    assert found.session_id == source.session_id
    assert turned is not None
    assert (turned.session.session_id, turned.appended.history_length) == (source.session_id, source.end + 1)
    assert turned.token_ids == answer_tokens(source.end + 1, source.end + 5)


async def test_one_that_comes_again_goes_on_in_its_fork(client: Client, source: Answer) -> None:
    """Which has the tags of its source, and so is what is found now."""
    other = await beside(client, source)
    request = searching(TWO, expected={0: 1}, token_ids=[7, 8])
    fork = await broken_off(client, request, 4)
    assert fork != source.session_id
    found, turned = await events(client, request)
    assert (found.session_id, turned is not None) == (fork, True)
    assert turned is not None
    assert (turned.session.session_id, turned.appended.history_length) == (fork, source.end + 1)
    assert turned.token_ids == answer_tokens(source.end + 1, source.end + 5)
    other.cancel()


async def test_one_that_was_found_comes_again_at_its_place(client: Client, source: Answer) -> None:
    """As where the connection broke once its caller had heard what was found."""
    other = await beside(client, source)
    fork = await broken_off(client, searching(TWO, expected={0: 1}, token_ids=[7, 8]), 2)
    again = await client.turn(
        turn_request(source.session_id, [8], boundary=source.end, request_id="fork", op_id=OP_ID, max_tokens=4)
    )
    assert again.session.session_id == fork != source.session_id
    assert again.appended.history_length == source.end + 1
    other.cancel()


async def test_beside_one_that_comes_again_another_fork_was_made(client: Client, source: Answer) -> None:
    """Of equal tags the latest counts, and that is the other one's by now."""
    other = await beside(client, source)
    request = searching(TWO, expected={0: 1}, token_ids=[7, 8])
    fork = await broken_off(client, request, 4)
    twin = turn_request(source.session_id, [5], boundary=source.end, request_id="another")
    twin.start_tags.append(FOUR)
    beside_it = await client.turn(twin)
    found, turned = await events(client, request)
    assert found.session_id == beside_it.session.session_id != source.session_id
    assert turned is not None
    assert turned.session.session_id == fork != found.session_id
    assert turned.token_ids == answer_tokens(source.end + 1, source.end + 5)
    other.cancel()


async def test_a_fork_for_another_place_is_not_taken(client: Client, source: Answer) -> None:
    """The tokens would come behind what they do not belong to."""
    other = await beside(client, source)
    await events(client, searching(TWO, expected={0: 0}, token_ids=[7, 8]))
    again = events(client, searching(ONE, expected={0: 0}, token_ids=[7, 8]))
    await refused(again, InvalidField, "session", field="request_id")
    other.cancel()


async def test_a_fork_of_another_conversation_is_not_taken(client: Client, source: Answer) -> None:
    """Although that has the same length."""
    other = await beside(client, source)
    request = searching(FOUR, TWO, expected={0: 0, 1: 0}, token_ids=[7, 8])
    found, _ = await events(client, request)
    assert found.session_id == source.session_id
    (deeper, *_) = await tagged(client, await client.session(), (THREE, FOUR))
    assert deeper.end == source.end
    await refused(events(client, request), InvalidField, "session", field="request_id")
    other.cancel()


async def test_a_beginning_without_new_tokens_is_tagged(client: Client, source: Answer) -> None:
    request = turn_request(source.session_id, boundary=source.end)
    request.start_tags.append(FOUR)
    await client.turn(request)
    found = await client.find(FOUR)
    assert place(found) == (source.session_id, "ANSWER_START", source.end)
    assert place(await client.find(TWO)) == (source.session_id, "ANSWER_END", source.end), "that is another place"


async def test_of_four_turns_the_beginnings_are_found(client: Client, worker: FakeWorker) -> None:
    session_id, tags = await client.session(), [bytes([number]) * 32 for number in range(6)]
    for tag in tags:
        request = turn_request(session_id, [1])
        request.start_tags.extend([tag, tag])
        await client.turn(request)
    found = [(await client.find(tag)).session_id for tag in tags]
    assert found == ["", "", *[session_id] * 4]


async def test_what_does_not_fit_has_no_tag(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session(on_overflow=api.OVERFLOW_POLICY_REFUSE)
    request = turn_request(session_id, [1])
    request.start_tags.append(ONE)
    request.spans[0].token_ids[:] = [1] * (worker.sink + worker.window + 1)
    await refused(client.turn(request), HistoryFull, "append")
    assert not (await client.find(ONE)).session_id


async def test_another_tenants_session_is_not_found(keyed: Keyed) -> None:
    await keyed.worker()
    keys = [await keyed.key(tenant=tenant) for tenant in ("one", "two")]
    one, two = (keyed.client(key.secret) for key in keys)
    (source,) = await tagged(one, await one.session(), (ONE, TWO))
    found, turned = await events(two, searching(TWO, expected={0: 0}, token_ids=[7]))
    assert (found, turned) == (api.FindSessionResponse(), None)
    found, turned = await events(one, searching(TWO, expected={0: 0}, token_ids=[7]))
    assert found.session_id == source.session_id
    assert turned is not None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"search": api.TurnSearch()}, "tags"),
        ({"search": api.TurnSearch(tags=[b"short"])}, "tags"),
        ({"search": api.TurnSearch(tags=[ONE], expected=[api.ExpectedPlace(tag_index=1)])}, "search"),
        ({"search": api.TurnSearch(tags=[ONE], expected=[api.ExpectedPlace(skipped_token_count=2)])}, "search"),
        ({"search": api.TurnSearch(tags=[ONE], request_id="r" * 129)}, "request_id"),
        ({"search": api.TurnSearch(tags=[ONE], model="m" * 1_000)}, "model"),
        ({"session": api.TurnPlace(session_id="tiny.x")}, "search"),
        ({"start_tags": [ONE] * 5}, "start_tags"),
        ({"start_tags": [b"short"]}, "start_tags"),
    ],
)
async def test_what_may_not_be_asked_for(
    client: Client, worker: FakeWorker, change: dict[str, Any], field: str
) -> None:
    request = searching(ONE, expected={0: 0}, token_ids=[7])
    for name in change:
        request.ClearField(name)  # type: ignore[arg-type]  # of the names above
    request.MergeFrom(api.TurnRequest(**change))
    with pytest.raises(InvalidField) as caught:
        await client.turn(request)
    assert (caught.value.metadata["field"], caught.value.metadata["part"]) == (field, "session")


async def test_what_fails_where_it_was_found_changes_nothing(stack: Stack, client: Client, source: Answer) -> None:
    request = searching(TWO, expected={0: 0}, token_ids=[1 << 20])
    await refused(client.turn(request), TokenOutOfVocabulary, "append")
    assert (await client.info(source.session_id)).history_length == source.end
    request.search.model = "another"
    await refused(client.turn(request), NoWorker, "session")


async def test_models_name_the_feature(client: Client, worker: FakeWorker) -> None:
    response = await answer(client.runtime.ListModels(api.ListModelsRequest()))
    assert [list(model.features) for model in response.models] == [["turn-search"]]
