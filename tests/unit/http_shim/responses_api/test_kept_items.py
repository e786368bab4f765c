"""The items of stored responses: packed once, in blocks, and remembered by these."""

import itertools
import secrets
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kakeya.text.rendering.kept import Kept
from kakeya_http_shim.requests.messages import for_template
from kakeya_http_shim.responses_api.as_chat import Stretch, chat_messages, items_of, merged, own_items
from kakeya_http_shim.responses_api.kept import kept_items
from kakeya_http_shim.responses_api.kept.kept_items import BLOCK_BYTES, KeptItems, stretch
from kakeya_http_shim.responses_api.kept.kept_response import Conversation, KeptResponse, items_to_keep
from kakeya_http_shim.responses_api.kept.packing import Unpacking, Unreadable, log, packed, records
from kakeya_http_shim.responses_api.responses_request import ResponsesRequest
from tests.unit.http_shim.responses_api.asking import RESPONSES, ask
from tests.unit.http_shim.shim import Shim

RESPONSE = f"resp_{'0' * 32}"
_CALL = {"type": "function_call", "call_id": "abcdefghi", "name": "f", "arguments": "{}"}
KINDS: dict[str, dict[str, Any]] = {
    "user": {"type": "message", "role": "user", "content": "Hello"},
    "system": {"type": "message", "role": "system", "content": "Be kind."},
    "answer": {"type": "message", "role": "assistant", "content": "Yes."},
    "thought": {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
    "call": _CALL,
    "result": {"type": "function_call_output", "call_id": "abcdefghi", "output": "Sun"},
}


def item(kind: str, num_letters: int = 0) -> dict[str, Any]:
    """One that no other test has."""
    name = "output" if kind == "result" else "content"
    text = {} if kind in ("call", "thought") else {name: f"{KINDS[kind][name]} {'x' * num_letters}"}
    return {**KINDS[kind], **text, "id": f"msg_{secrets.token_hex(16)}"}


def turns(number: int, num_letters: int = 1000) -> list[dict[str, Any]]:
    return [item(kind, num_letters) for _ in range(number) for kind in ("user", "answer")]


def as_kept(items: list[dict[str, Any]]) -> list[bytes]:
    return [*KeptItems(items).packed]


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What was packed before this was packed by another server."""
    return lambda: monkeypatch.setattr(kept_items, "_blocks", Kept(1 << 25))


def test_they_are_unpacked_as_they_were_packed(forget: Callable[[], None]) -> None:
    for number in (0, 1, 40):
        items = turns(number)
        packed = as_kept(items)
        forget()
        kept = KeptItems.unpacked(packed, Unpacking())
        assert ([*kept], len(kept), kept[:1]) == (items, len(items), items[:1])
        assert [each.id for each in items_of(kept.stretches)] == [each["id"] for each in items]


def test_what_is_packed_in_a_full_block_is_never_packed_again() -> None:
    kept, before = KeptItems(), [b""]
    items: list[dict[str, Any]] = []
    for _ in range(60):
        new = turns(1)
        items += new
        now = [*kept.followed_by(new).packed]
        assert all(ours is theirs for ours, theirs in zip(now, before[:-1], strict=False)), (
            "full blocks are as they were"
        )
        kept, before = KeptItems.unpacked(now, Unpacking()), now
        assert [*kept.packed] == now
    assert [*kept] == items
    unpacking = Unpacking()
    sizes = [len(unpacking.unpacked(each)[1]) for each in before]
    assert len(sizes) > 3
    assert all(BLOCK_BYTES <= size < BLOCK_BYTES + 4000 for size in sizes[:-1])


def test_what_nothing_was_said_before_is_as_it_is() -> None:
    kept = KeptItems.unpacked(as_kept(turns(40)), Unpacking())
    said = Conversation(kept.stretches, kept)
    assert Conversation().followed_by(said) is said
    both = said.followed_by(said)
    assert ([*both.kept], both.items) == ([*kept, *kept], [*said.items, *said.items])


def test_a_block_that_is_remembered_is_not_unpacked_again(forget: Callable[[], None]) -> None:
    blocks = as_kept(turns(60))
    forget()
    with pytest.raises(Unreadable):
        KeptItems.unpacked(blocks, Unpacking(BLOCK_BYTES))
    KeptItems.unpacked(blocks, Unpacking())
    again = KeptItems.unpacked(blocks, Unpacking(0))
    assert len(again) == 120


def test_a_block_that_was_packed_here_is_not_unpacked_at_all(forget: Callable[[], None]) -> None:
    """What is new is made of, and nothing else, and it comes to the same."""
    kept, nothing = KeptItems(), Unpacking(0)
    for number in range(60):
        packed = [*kept.followed_by(turns(1)).packed]
        kept = KeptItems.unpacked(packed, nothing)
        assert sum(len(each.items) for each in kept.stretches) == len(kept) == 2 * (number + 1)
        begun = kept._blocks[-1].begun
        assert kept._blocks[-1].stretches[: len(begun)] == begun
    ours = [(items_of(kept.stretches), [message for each in kept.stretches for message in each.messages])]
    assert len(kept._blocks) > 3
    assert all(len(block.begun) == 1 and len(block.stretches) <= 2 for block in kept._blocks)  # of some 15 turns each
    forget()
    kept = KeptItems.unpacked(packed, Unpacking())
    assert [(items_of(kept.stretches), [message for each in kept.stretches for message in each.messages])] == ours


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_remembered_is_what_the_bytes_say(kind: str) -> None:
    """It was made of what a client sent, and not of them."""
    given = ResponsesRequest.model_validate({"model": "m", "input": [KINDS[kind]]})
    kept = items_to_keep(own_items(given))
    (packed,) = as_kept(kept)
    remembered, (told, _) = KeptItems.unpacked([packed], Unpacking(0)), Unpacking().unpacked(packed)
    assert [*remembered] == kept == told
    assert items_of(remembered.stretches) == items_of([stretch(told)])


def test_a_block_takes_the_place_of_what_it_began_as() -> None:
    begun = as_kept(turns(1))
    KeptItems.unpacked(begun, Unpacking(0)).followed_by(turns(1)).packed  # noqa: B018  # it is made when it is asked for
    with pytest.raises(Unreadable):
        KeptItems.unpacked(begun, Unpacking(0))


def test_blocks_of_a_server_that_fills_them_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, new = turns(6), turns(1)
    kept = KeptItems.unpacked(as_kept(begun), Unpacking(0))
    monkeypatch.setattr(kept_items, "BLOCK_BYTES", 2000)
    packed = [*kept.followed_by(new).packed]
    assert len(packed) > 3
    again = KeptItems.unpacked(packed, Unpacking(0))
    assert [each.id for each in items_of(again.stretches)] == [each["id"] for each in [*begun, *new]]


def test_what_is_unpacked_has_a_bound_for_all_of_it() -> None:
    data = packed("Hello")
    for num_more in (-1, 0, 6):
        unpacking = Unpacking(2 * len('"Hello"') + num_more)
        assert unpacking.unpacked(data) == ("Hello", b'"Hello"')
        if num_more >= 0:
            unpacking.unpacked(data)
        with pytest.raises(Unreadable):
            unpacking.unpacked(data)


def test_what_is_remembered_takes_no_more_than_is_counted(forget: Callable[[], None]) -> None:
    """Also where a client sends what takes many times its letters."""
    many: list[list[Any]] = [[], [[] for _ in range(20_000)], [{"a": 1000} for _ in range(20_000)]]
    for more in many:
        items = [{**item("call"), "parsed_arguments": more}, *turns(20)]
        full, _ = as_kept(items)[:2]
        forget()
        tracemalloc.start()
        try:
            block = KeptItems.unpacked([full, packed([])], Unpacking())._blocks[0]
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert 20_000 < taken <= len(block) < 1 << 26


def test_many_short_conversations_take_no_more_than_is_counted(forget: Callable[[], None]) -> None:
    """As requests have them, too, which is made later."""
    forget()
    given = [ResponsesRequest.model_validate({"model": "m", "input": f"Hello {number}"}) for number in range(500)]
    tracemalloc.start()
    try:
        for each in given:
            (packed,) = as_kept(items_to_keep(own_items(each)))
            assert len(KeptItems.unpacked([packed], Unpacking(0)).stretches) == 2
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(given) * 1000 < taken <= kept_items._blocks._length


def test_messages_are_made_once() -> None:
    """Where nothing but an answer stands in the latest stretch, too: it does not begin in an older one."""
    given = ResponsesRequest.model_validate({"model": "m", "input": [KINDS["user"]]})
    before = [stretch([item("user"), item("answer"), item("user")]), stretch([item("answer")])]
    made = [id(message) for each in before for message in each.messages]
    assert [id(message) for message in chat_messages(given, before)][:-1] == made


def _kinds() -> Iterator[tuple[str, ...]]:
    for length in range(1, 4):
        yield from itertools.product(KINDS, repeat=length)


def test_messages_are_the_same_however_items_are_cut() -> None:
    """An answer's thought, text and calls are one message, whichever blocks they are in."""
    given = ResponsesRequest.model_validate({"model": "m", "input": [KINDS["user"]]})
    for kinds in _kinds():
        items = items_of([stretch([KINDS[kind] for kind in kinds])])
        whole = [for_template(each) for each in chat_messages(given, [Stretch.of(items)])]
        for places in itertools.product((False, True), repeat=len(items) - 1):
            ends = [0, *(place for place, cuts in enumerate(places, start=1) if cuts), len(items)]
            pairs = [(Stretch.of(items[begin:end]), Stretch.of([])) for begin, end in itertools.pairwise(ends)]
            cut = [each for pair in pairs for each in pair]
            assert [for_template(each) for each in chat_messages(given, cut)] == whole
            fewer = merged(cut)
            assert [for_template(each) for each in chat_messages(given, fewer)] == whole
            assert (items_of(fewer), merged(fewer)) == (items, fewer)
            assert len(fewer) == 1 + sum(_is_within_answer(kinds, place) for place in ends[1:-1])


def _is_within_answer(kinds: Sequence[str], place: int) -> bool:
    of_model = ("answer", "thought", "call")
    return kinds[place - 1] in of_model and kinds[place] in of_model


def test_no_block_ends_within_an_answer() -> None:
    items = [item(kind, 1000) for _ in range(30) for kind in ("user", "thought", "answer", "call", "result", "answer")]
    kept = KeptItems.unpacked(as_kept(items), Unpacking())
    begun = [each.items[0] for each in kept.stretches[:-1]]
    assert len(begun) > 3
    assert {each.type for each in begun} <= {"message", "function_call_output"}
    assert {getattr(each, "role", "user") for each in begun} == {"user"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no",
        log([packed({"version": 3, "response": {}})]),
        log([packed({"version": 2, "response": {}}), packed([])]),
        log([packed([]), packed([])]),
        log([packed({"version": 3, "response": {}}), b"no"]),
        log([packed({"version": 3, "response": {}}), packed([])])[:-1],
        log([packed({"version": 3, "response": {}}), packed(1)]),
        log([packed({"version": 3, "response": {}}), packed([1])]),
        log([packed({"version": 3, "response": {}}), packed([{"type": "nonsense"}]), packed([])]),
        log([packed({"version": 3, "response": {}}), packed([{**KINDS["user"], "id": "x" * (64 << 20)}])]),
    ],
)
async def test_what_another_one_has_stored_is_none(shim: Shim, data: bytes) -> None:
    shim.runtime.objects[RESPONSE] = data
    found = await shim.http.get(f"{RESPONSES}/{RESPONSE}")
    assert (found.status_code, found.json()["error"]["code"]) == (404, "response_not_found")
    with pytest.raises(Unreadable):
        KeptResponse.unpacked(data)


async def test_a_long_conversation_is_there_until_it_is_deleted(shim: Shim) -> None:
    """Whatever this server remembers of it, and whichever of its responses are gone."""
    said = turns(60)
    shim.will_say("Yes.")
    begun = await ask(shim, input=said)
    assert begun.status_code == 200, begun.text
    first = begun.json()["id"]
    ids = [first]
    for number in range(3):
        shim.will_say("Yes.")
        response = await ask(shim, input=f"And {number}?", previous_response_id=ids[-1])
        assert response.status_code == 200, response.text
        ids.append(response.json()["id"])
    blocks = [[*records(shim.runtime.objects[each])][1:-1] for each in ids]
    assert len(blocks[0]) > 2
    assert all(each[: len(blocks[0])] == blocks[0] for each in blocks), "packed once, for all of them"
    for gone in ids[:-1]:
        assert (await shim.http.delete(f"{RESPONSES}/{gone}")).status_code == 200
        refused = (await ask(shim, previous_response_id=gone)).json()["error"]
        assert refused["code"] == "previous_response_not_found"
    shim.will_say("Yes.")
    last = await ask(shim, input="Still there?", previous_response_id=ids[-1])
    assert last.status_code == 200, last.text
    kept = KeptResponse.unpacked(shim.runtime.objects[last.json()["id"]])
    assert len(kept.items) == len(said) + 2 * 3 + 1 + 1
    assert [each["id"] for each in kept.items[: len(said)]] == [each["id"] for each in said]
