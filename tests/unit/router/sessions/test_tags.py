"""TagTurn and FindSession: a caller finds its session by what it calls a place of it, and no other one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from kakeya_shared.errors.tree import (
    BoundaryNotReachable,
    InvalidField,
    NoWorker,
    OperationRunning,
    SessionNotFound,
    WorkerLost,
)
from kakeya_stubs.v1 import runtime_pb2 as api
from tests.unit.router.fake_worker import WINDOW, FakeWorker, SnapshotFiles
from tests.unit.router.keyed import Keyed
from tests.unit.router.lapses import be_lost, expire
from tests.unit.router.sessions.test_forks import fork_of
from tests.unit.router.stack import FORGETFUL, Client, Stack, answer, eventually, turn_request, unknown_id

ONE, TWO, THREE, FOUR = (bytes([number]) * 32 for number in range(1, 5))


class Answer(NamedTuple):
    """Where an answer began and has ended, and the operation that it was."""

    session_id: str
    start: int
    end: int
    op_id: str


async def turn(client: Client, session_id: str, num_tokens: int = 3, max_tokens: int = 4) -> Answer:
    turned = await client.turn(turn_request(session_id, range(num_tokens), max_tokens))
    done = turned.done
    return Answer(turned.session.session_id, turned.appended.history_length, done.history_length, done.op_id)


async def tagged(client: Client, session_id: str, *tags: Sequence[bytes]) -> list[Answer]:
    """A turn for each pair of tags, of where its answer begins and has ended."""
    turns = []
    for start_tag, end_tag in tags:
        answer = await turn(client, session_id)
        await client.tag(session_id, "ANSWER_START", answer.start, start_tag, op_id=answer.op_id)
        await client.tag(session_id, "ANSWER_END", answer.end, end_tag, op_id=answer.op_id)
        turns.append(answer)
    return turns


def place(found: api.FindSessionResponse) -> tuple[Any, ...]:
    """Where it is, in words."""
    kind = api.PlaceKind.Name(found.place.kind).removeprefix("PLACE_KIND_")
    return found.session_id, kind, found.place.history_length


async def tag_keys(stack: Stack) -> set[str]:
    return await stack.keys("kakeya:{*}:tag*")


async def no_tag(stack: Stack) -> bool:
    return not await tag_keys(stack)


async def test_the_deepest_place_is_found(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    await client.append(session_id, [1, 2])
    await client.tag(session_id, "HEAD", 2, FOUR)
    first, second = await tagged(client, session_id, (ONE, TWO), (TWO, THREE))
    found = await client.find(bytes(32), THREE, TWO, ONE)
    assert place(found) == (session_id, "ANSWER_END", second.end)
    assert (found.tag_index, found.is_idle_end, found.is_last) == (1, True, True)
    assert found.history_length == second.end
    found = await client.find(TWO, ONE)  # the latest of its places
    assert place(found) == (session_id, "ANSWER_START", second.start)
    assert (found.tag_index, found.is_idle_end, found.is_last) == (0, False, False)
    assert place(await client.find(ONE)) == (session_id, "ANSWER_START", first.start)
    assert place(await client.find(FOUR)) == (session_id, "HEAD", 2)
    assert await client.find(bytes(32)) == api.FindSessionResponse()


async def test_what_has_come_since_is_said(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    (answer,) = await tagged(client, session_id, (ONE, TWO))
    await client.append(session_id, [5])
    found = await client.find(TWO)
    assert (found.place.history_length, found.history_length) == (answer.end, answer.end + 1)
    assert (found.is_idle_end, found.is_last) == (False, True)  # what no tag names can be rewound
    await client.rewind(session_id, answer.end, expected_history_length=found.history_length)
    assert (await client.find(TWO)).is_idle_end


async def test_a_session_in_the_middle_of_an_answer_is_not_idle(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    (answer,) = await tagged(client, session_id, (ONE, TWO))
    call = client.generating(session_id, 100_000, op_id="mine")
    await call.read()
    assert not (await client.find(TWO)).is_idle_end
    await client.tag(session_id, "ANSWER_START", answer.end, THREE, op_id="mine")
    with pytest.raises(OperationRunning):
        await client.tag(session_id, "ANSWER_END", answer.end + 1, FOUR, op_id="mine")
    call.cancel()
    found = await eventually(lambda: idle_after(client, session_id, answer.end))
    await client.tag(session_id, "ANSWER_END", found.history_length, FOUR, op_id="mine")
    assert (await client.find(FOUR)).is_idle_end


async def idle_after(client: Client, session_id: str, length: int) -> Any:
    info = await client.info(session_id)
    ended = info.history_length > length and info.boundaries and info.boundaries[-1] == info.history_length
    return info if ended else None


async def test_a_place_that_is_gone_is_refused(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    answer = await turn(client, session_id)
    await client.rewind(session_id, answer.start)
    with pytest.raises(BoundaryNotReachable) as refused:
        await client.tag(session_id, "ANSWER_END", answer.end, ONE, op_id=answer.op_id)
    assert refused.value.metadata["reachable"]
    again = await turn(client, session_id, 0)
    assert again[1:3] == answer[1:3]
    with pytest.raises(BoundaryNotReachable):  # there is another answer of that length
        await client.tag(session_id, "ANSWER_END", answer.end, ONE, op_id=answer.op_id)
    with pytest.raises(SessionNotFound):
        await client.tag(unknown_id(session_id), "ANSWER_END", answer.end, ONE, op_id=answer.op_id)
    assert await client.find(ONE) == api.FindSessionResponse()


async def test_a_repeated_call_changes_nothing(stack: Stack, client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    (answer,) = await tagged(client, session_id, (ONE, TWO))
    await turn(client, session_id)
    held = await stack.redis.hgetall(f"kakeya:{{tiny}}:tags:{session_id}")
    await client.tag(session_id, "ANSWER_END", answer.end, TWO, op_id=answer.op_id)
    assert await stack.redis.hgetall(f"kakeya:{{tiny}}:tags:{session_id}") == held


async def test_only_the_last_four_turns_are_found(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    tags = [(bytes([10 + number]) * 32, bytes([20 + number]) * 32) for number in range(6)]
    turns = await tagged(client, session_id, *tags)
    for number, made in enumerate(turns):
        found = [place(await client.find(tag)) for tag in tags[number]]
        there = [(session_id, "ANSWER_START", made.start), (session_id, "ANSWER_END", made.end)]
        assert found == (there if number >= 2 else 2 * [("", "UNSPECIFIED", 0)])


async def test_a_fork_has_the_places_up_to_where_it_begins(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    first, second = await tagged(client, session_id, (ONE, TWO), (THREE, FOUR))
    fork = await client.session(fork_from={"session_id": session_id, "boundary": first.end})
    found = await client.find(TWO)  # of equal ones the latest
    assert (place(found), found.is_idle_end) == ((fork, "ANSWER_END", first.end), True)
    assert place(await client.find(FOUR, TWO)) == (session_id, "ANSWER_END", second.end)
    found = await client.find(TWO, ONE, session_id=session_id)
    assert (place(found), found.tag_index) == ((session_id, "ANSWER_END", first.end), 0), "of the one that is named"
    found = await client.find(bytes(32), ONE, session_id=fork)
    assert (place(found), found.tag_index) == ((fork, "ANSWER_START", first.start), 1)
    assert not (await client.find(FOUR, session_id=fork)).session_id
    assert not (await client.find(FOUR, session_id=await client.session())).session_id, "it has no tags"
    with pytest.raises(SessionNotFound):
        await client.find(TWO, session_id="no.such")
    await tagged(client, fork, (THREE, THREE))
    assert (await client.find(THREE)).session_id == fork
    await client.close(fork)
    assert place(await client.find(TWO)) == (session_id, "ANSWER_END", first.end)
    assert place(await client.find(THREE)) == (session_id, "ANSWER_START", second.start)


async def test_what_a_rewind_takes_back_is_not_found(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    first, second = await tagged(client, session_id, (ONE, TWO), (THREE, FOUR))
    await client.rewind(session_id, second.start)
    assert (await client.find(FOUR)).session_id == ""
    found = await client.find(FOUR, THREE)
    assert (place(found), found.is_idle_end) == ((session_id, "ANSWER_START", second.start), True)
    await client.rewind(session_id, first.end)
    assert (await client.find(TWO)).is_idle_end
    assert (await client.find(FOUR, THREE)).session_id == ""


async def test_a_rewind_can_be_of_what_no_tag_names_alone(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    (made,) = await tagged(client, session_id, (ONE, TWO))
    await client.append(session_id, [5])
    with pytest.raises(BoundaryNotReachable):
        await client.rewind(session_id, made.start, only_untagged=True)
    assert (await client.info(session_id)).history_length == made.end + 1
    assert (await client.rewind(session_id, made.end, only_untagged=True)).history_length == made.end
    untagged = await client.session()
    await client.append(untagged, [5, 6])
    assert (await client.rewind(untagged, 1, only_untagged=True)).history_length == 1


async def test_a_rewind_can_be_of_the_latest_operation_alone(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    (made,) = await tagged(client, session_id, (ONE, TWO))
    await client.append(session_id, [5])
    for target in (made.start, made.end):
        with pytest.raises(BoundaryNotReachable):
            await client.rewind(session_id, target, op_id=made.op_id)
    assert (await client.rewind(session_id, made.end)).history_length == made.end
    assert (await client.rewind(session_id, made.end, op_id=made.op_id)).history_length == made.end, "it is there"
    other_id = await client.session()
    (other,) = await tagged(client, other_id, (THREE, FOUR))
    assert (await client.rewind(other_id, other.start, op_id=other.op_id)).history_length == other.start
    with pytest.raises(InvalidField, match="op_id"):
        await client.rewind(session_id, 1, op_id="x" * 129)


async def test_a_parked_session_is_found(client: Client, worker: FakeWorker) -> None:
    session_id = await client.session()
    (answer,) = await tagged(client, session_id, (ONE, TWO))
    await client.park(session_id)
    found = await client.find(TWO)
    assert (place(found), found.is_idle_end) == ((session_id, "ANSWER_END", answer.end), True)
    turned = await client.turn(turn_request(session_id, [1], boundary=answer.end))
    assert (turned.session.session_id, turned.appended.history_length) == (session_id, answer.end + 1)


async def test_they_end_with_the_session(stack: Stack, client: Client, worker: FakeWorker) -> None:
    closed, expired = await client.session(), await client.session()
    for session_id in (closed, expired):
        await tagged(client, session_id, (ONE, TWO))
    await client.close(closed)
    assert (await client.find(TWO)).session_id == expired
    await expire(stack, expired)
    await eventually(lambda: no_tag(stack))
    assert await client.find(TWO) == api.FindSessionResponse()


async def test_a_fork_that_ends_with_its_answer_has_none(client: Client, worker: FakeWorker) -> None:
    """Who found it would be ended with it."""
    session_id = await client.session()
    (answer,) = await tagged(client, session_id, (ONE, TWO))
    for is_ephemeral in (True, False):
        fork = await client.session(**fork_of(session_id, boundary=answer.end), ephemeral=is_ephemeral)
        assert (await client.find(TWO)).session_id == (session_id if is_ephemeral else fork)


async def test_they_end_with_a_loss(stack: Stack) -> None:
    client = await stack.router(**FORGETFUL)
    worker = await stack.worker(client)
    session_id = await client.session()
    for _ in range(3):
        made = await turn(client, session_id, 2)
        await client.tag(session_id, "ANSWER_END", made.end, ONE, op_id=made.op_id)
    await be_lost(worker)
    await eventually(lambda: no_tag(stack))
    with pytest.raises(WorkerLost):
        await client.tag(session_id, "ANSWER_END", made.end, ONE, op_id=made.op_id)


async def test_they_end_with_a_record_that_is_evicted(stack: Stack, client: Client, worker: FakeWorker) -> None:
    evicted, other = await client.session(), await client.session()
    for session_id in (other, evicted):
        await tagged(client, session_id, (ONE, TWO))
    await stack.redis.delete(f"kakeya:{{tiny}}:session:{evicted}")
    assert (await client.find(TWO)).session_id == other
    await expire(stack, evicted)
    await eventually(lambda: is_left(stack, 2))
    assert await tag_keys(stack) == {f"kakeya:{{tiny}}:tags:{other}", "kakeya:{tiny}:tagged::Tiny"}


async def is_left(stack: Stack, num_tags: int) -> bool:
    return bool(await stack.redis.zcard("kakeya:{tiny}:tagged::Tiny") == num_tags)


async def test_a_place_that_cannot_be_gone_on_with_is_passed_over(stack: Stack) -> None:
    client = await stack.router(**FORGETFUL)
    await stack.worker(client)
    session_id = await client.session()
    ends = []
    for tag in (ONE, TWO):
        answer = await turn(client, session_id, 2, 2 * WINDOW)
        await client.tag(session_id, "ANSWER_END", answer.end, tag, op_id=answer.op_id)
        ends.append(answer.end)
    assert await client.find(ONE) == api.FindSessionResponse()  # what was there is forgotten, and nowhere else
    assert place(await client.find(ONE, TWO)) == (session_id, "ANSWER_END", ends[-1])


async def test_a_session_that_no_worker_can_go_on_with_is_passed_over(stack: Stack, client: Client) -> None:
    """As where the model has other weights by now."""
    files = SnapshotFiles()
    before = await stack.worker(client, "worker-a", fingerprint="aa", files=files)
    session_id = await client.session()
    await tagged(client, session_id, (ONE, TWO))
    await client.park(session_id)
    await stack.worker(client, "worker-b", fingerprint="bb", files=files)
    await be_lost(before)
    await eventually(lambda: is_found(client, TWO, ""))
    assert (await client.find(TWO, session_id=session_id)).session_id == session_id, "asked for by its name"
    await stack.worker(client, "worker-c", fingerprint="aa", files=files)
    await eventually(lambda: is_found(client, TWO, session_id))


async def is_found(client: Client, tag: bytes, session_id: str) -> bool:
    return bool((await client.find(tag)).session_id == session_id)


@pytest.mark.parametrize(("num_stale", "is_found"), [(3, True), (40, False)])
async def test_a_search_looks_at_a_few_sessions_at_most(
    stack: Stack, client: Client, worker: FakeWorker, num_stale: int, is_found: bool
) -> None:
    session_id = await client.session()
    await tagged(client, session_id, (ONE, TWO))
    stale = {f"{TWO.hex()}|9{number:015}|end|7|tiny.gone": 0 for number in range(num_stale)}
    await stack.redis.zadd("kakeya:{tiny}:tagged::Tiny", stale)
    assert (await client.find(TWO)).session_id == (session_id if is_found else "")


async def test_tags_that_an_older_router_has_left_are_not_found(
    stack: Stack, client: Client, worker: FakeWorker
) -> None:
    session_id = await client.session()
    await tagged(client, session_id, (ONE, TWO))
    await stack.redis.hincrby(f"kakeya:{{tiny}}:session:{session_id}", "num_rewinds", 1)
    assert await client.find(TWO, ONE) == api.FindSessionResponse()


async def test_another_router_finds_it(stack: Stack, client: Client, worker: FakeWorker) -> None:
    other = await stack.router()
    session_id = await client.session()
    (answer,) = await tagged(client, session_id, (ONE, TWO))
    assert place(await other.find(TWO)) == (session_id, "ANSWER_END", answer.end)
    await tagged(other, session_id, (THREE, FOUR))
    assert (await client.find(FOUR)).is_idle_end


async def test_another_tenant_finds_nothing(keyed: Keyed) -> None:
    await keyed.worker()
    acme, other = await keyed.tenant("acme"), await keyed.tenant("other")
    session_id = await acme.session()
    (answer,) = await tagged(acme, session_id, (ONE, TWO))
    assert await other.find(TWO, ONE) == api.FindSessionResponse()
    with pytest.raises(SessionNotFound):
        await other.tag(session_id, "ANSWER_END", answer.end, THREE, op_id=answer.op_id)
    own = await other.session()
    await tagged(other, own, (ONE, TWO))
    assert (await acme.find(TWO)).session_id == session_id
    assert (await other.find(TWO)).session_id == own
    assert (await (await keyed.tenant("acme")).find(TWO)).session_id == session_id  # another key of the same


async def test_another_model_is_another_search(stack: Stack, client: Client) -> None:
    await stack.worker(client, "worker-a", model="Zwei", pool="zwei")
    await stack.worker(client, "worker-b", model="Eins", pool="eins")
    session_id = await client.session(model="Zwei")
    await tagged(client, session_id, (ONE, TWO))
    assert (await client.find(TWO, model="Zwei")).session_id == session_id
    assert (await client.find(TWO, model="Eins")).session_id == ""
    with pytest.raises(InvalidField):
        await client.find(TWO)
    with pytest.raises(NoWorker):
        await client.find(TWO, model="Drei")
    told = await stack.router(default_model="Zwei")
    assert (await told.find(TWO)).session_id == session_id


async def test_of_several_pools_the_deepest_and_latest_counts(stack: Stack, client: Client) -> None:
    sessions = []
    for pool in ("eins", "zwei"):
        worker = await stack.worker(client, f"worker-{pool}", pool=pool, num_lanes=1)
        sessions.append(await client.session())
        await tagged(client, sessions[-1], (ONE, TWO) if pool == "eins" else (ONE, THREE))
        assert sessions[-1] in worker.lanes
    assert (await client.find(ONE)).session_id == sessions[1]
    assert (await client.find(TWO, ONE)).session_id == sessions[0]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"place": {"kind": "PLACE_KIND_UNSPECIFIED", "history_length": 1}}, "place"),
        ({"place": {"kind": 77, "history_length": 1}}, "place"),
        ({"place": {"kind": "PLACE_KIND_HEAD"}}, "place"),
        ({"place": {"kind": "PLACE_KIND_HEAD", "history_length": 2**63}}, "place"),
        ({"op_id": ""}, "op_id"),
        ({"op_id": "o" * 129}, "op_id"),
        ({"tags": []}, "tags"),
        ({"tags": 5 * [ONE]}, "tags"),
        ({"tags": [ONE[:-1]]}, "tags"),
    ],
)
async def test_tags_that_may_not_be_given(
    client: Client, worker: FakeWorker, fields: dict[str, Any], field: str
) -> None:
    session_id = await client.session()
    made = await turn(client, session_id)
    given: dict[str, Any] = {
        "place": {"kind": "PLACE_KIND_ANSWER_END", "history_length": made.end},
        "tags": [ONE],
    } | fields
    request = api.TagTurnRequest(session_id=session_id, **({"op_id": made.op_id} | given))
    with pytest.raises(InvalidField) as raised:
        await answer(client.runtime.TagTurn(request))
    assert raised.value.metadata["field"] == field


@pytest.mark.parametrize(
    ("tags", "model", "field"),
    [([], "", "tags"), (65 * [ONE], "", "tags"), ([b""], "", "tags"), ([ONE], "two\nlines", "model")],
)
async def test_what_may_not_be_searched_for(
    client: Client, worker: FakeWorker, tags: list[bytes], model: str, field: str
) -> None:
    with pytest.raises(InvalidField) as raised:
        await client.find(*tags, model=model)
    assert raised.value.metadata["field"] == field
