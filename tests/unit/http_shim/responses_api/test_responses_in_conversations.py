"""Responses in a conversation: they go on from its items, and add theirs to it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kakeya_http_shim.responses_api.kept.kept_conversation import KeptConversation
from kakeya_http_shim.responses_api.kept.kept_response import KeptResponse
from kakeya_http_shim.responses_api.kept.packing import Unreadable
from kakeya_http_shim.responses_api.response_object import ResponseObject
from tests.unit.http_shim.responses_api.asking import RESPONSES, answered, ask, events, named, put_together, user
from tests.unit.http_shim.responses_api.test_conversations import NOT_FOUND, UNKNOWN, adds, begun, call, listed, said
from tests.unit.http_shim.responses_api.test_previous_responses import live, says
from tests.unit.http_shim.shim import Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.talk import Told
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails

__all__ = ["live"]


async def turn(shim: Shim, conversation: str, text: Any, answer: str = "Yes.", **fields: Any) -> tuple[Told, Any]:
    """What an answer says of its session, and the response."""
    return await says(shim, text, None, answer, conversation=conversation, **fields)


async def test_turns_in_a_conversation(live: Shim) -> None:
    path = (await begun(live, {"role": "developer", "content": "Be kind."}))["id"]
    told, first = await turn(live, path, "Hello")
    ResponseObject.model_validate(first)
    assert (told.short, first["conversation"], first["previous_response_id"]) == (
        ("new", "first-turn"),
        {"id": path},
        None,
    )
    session = told.id
    for number in range(3):
        told, _ = await turn(live, path, f"And {number}?", f"Answer {number}.")
        behind = f"\n<|im_start|>user\nAnd {number}?<|im_end|>\n<|im_start|>assistant\n"
        assert (told.short, told.id, told.appended) == (("continued", "next-turn"), session, len(live.tokens(behind)))
    items = await listed(live, path)
    turns = [text for number in range(3) for text in (f"And {number}?", f"Answer {number}.")]
    assert said(items) == ["Be kind.", "Hello", "Yes.", *turns]
    assert [item["id"] for item in items][2] == first["output"][0]["id"]


async def test_a_stream_in_a_conversation_named_as_an_object(live: Shim) -> None:
    path = (await begun(live))["id"]
    live.will_say("Hi")
    response = await ask(live, conversation={"id": path}, stream=True)
    told = put_together(named(response.text))
    assert (told["conversation"], told["status"]) == ({"id": path}, "completed")
    assert said(await listed(live, path)) == ["Hello", "Hi"]


async def test_a_response_keeps_its_own_items_alone(live: Shim) -> None:
    """Else each turn would keep the text of all turns before it."""
    path = (await begun(live))["id"]
    for number in range(3):
        _, response = await turn(live, path, f"And {number}?")
    found = (await live.http.get(f"{RESPONSES}/{response['id']}")).json()
    assert found == response
    items = (await live.http.get(f"{RESPONSES}/{response['id']}/input_items?order=asc")).json()["data"]
    assert items == [(await listed(live, path))[-2]]


async def test_a_conversation_may_be_gone_on_from_a_response_in_it(live: Shim) -> None:
    path = (await begun(live))["id"]
    _, first = await turn(live, path, "One?")
    session, second = await turn(live, path, "Two?")
    await turn(live, path, "Three?")
    told, third = await says(live, "Other?", second["id"])
    assert (told.short, "conversation" in third) == (("forked", "earlier-place"), False)
    kept = KeptResponse.unpacked(live.runtime.objects[third["id"]])
    assert said([*kept.items]) == ["One?", "Yes.", "Two?", "Yes.", "Other?"]
    told, _ = await says(live, "Other?", first["id"])
    assert told.id != session.id
    (one, *_) = await listed(live, path)
    await call(live, "DELETE", f"{path}/items/{one['id']}")
    _, other = await says(live, "Other?", second["id"])
    kept = KeptResponse.unpacked(live.runtime.objects[other["id"]])
    assert said([*kept.items]) == ["Yes.", "Two?", "Yes.", "Other?"]


async def test_a_response_whose_place_is_gone(live: Shim) -> None:
    path = (await begun(live, user("Zero")))["id"]
    _, first = await turn(live, path, "One?")
    _, second = await turn(live, path, "Two?")
    (zero, *_) = await listed(live, path)
    await call(live, "DELETE", f"{path}/items/{zero['id']}")
    for gone in (first["id"], second["id"]):
        refused = await ask(live, previous_response_id=gone)
        if gone == second["id"]:
            assert refused.status_code == 200
        else:
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "previous_response_id")
            assert "has been changed" in refused.json()["error"]["message"]
    await call(live, "DELETE", path)
    refused = await ask(live, previous_response_id=second["id"])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "previous_response_id")
    assert "not there any more" in refused.json()["error"]["message"]
    live.runtime.before["FetchObject"] += [lambda _: None, fails("PERMISSION_DENIED")]
    assert (await ask(live, previous_response_id=second["id"])).status_code == 403


async def test_one_that_is_not_stored_adds_its_items_all_the_same(live: Shim) -> None:
    path = (await begun(live))["id"]
    _, response = await turn(live, path, "Hello", store=False)
    assert not response["store"]
    assert [*live.runtime.objects] == [path]
    assert said(await listed(live, path)) == ["Hello", "Yes."]
    live.will_say("Well.")
    assert (await events(live, conversation=path, store=False))[-1]["type"] == "response.completed"
    assert len(await listed(live, path)) == 4


async def test_an_answer_that_was_cut_is_an_item_too(live: Shim) -> None:
    path = (await begun(live))["id"]
    live.will_say("cut", ends=False)
    first = await answered(live, conversation=path, max_output_tokens=3)
    assert (first["status"], (await listed(live, path))[-1]["status"]) == ("incomplete", "incomplete")
    told, _ = await turn(live, path, "And?")
    assert told.short == ("continued", "next-turn")


async def test_one_that_fails_adds_nothing(live: Shim) -> None:
    path = (await begun(live))["id"]
    live.will_say("Hi", ends=False)
    live.runtime.after["Turn"].append(fails("SESSION_CLOSED"))
    live.runtime.after["Generate"].append(fails("SESSION_CLOSED"))
    assert (await events(live, conversation=path, max_output_tokens=2))[-1]["type"] == "response.failed"
    assert await listed(live, path) == []


async def test_a_client_that_leaves_adds_nothing(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    runtime.hold_after = 2
    async with serving_shim(runtime, tokenizer_dir, "--response-linger-seconds", "0.1") as shim:
        path = (await begun(shim))["id"]
        body = {"input": "Hello", "max_output_tokens": 5, "stream": True, "conversation": path}
        async with shim.http.stream("POST", RESPONSES, json=body) as response:
            lines = response.aiter_lines()  # an iterator that nobody has any more closes the stream
            assert await anext(lines) == "event: response.created"
        await shim.nothing_left()
        async with asyncio.timeout(60):
            while not any(map(_is_cancelled, runtime.objects.values())):
                await asyncio.sleep(0.01)
        assert await listed(shim, path) == []


def _is_cancelled(data: bytes) -> bool:
    try:
        return KeptResponse.unpacked(data).status == "cancelled"
    except Unreadable:  # the conversation
        return False


async def test_two_at_once_lose_nothing(live: Shim) -> None:
    """Each has seen what was there when it began; one's items come behind the other's."""
    path = (await begun(live))["id"]
    live.runtime.token_seconds = 0.02
    for _ in range(4):
        live.will_say("Hi")
    await asyncio.gather(*(answered(live, conversation=path, input=f"{number}?") for number in range(4)))
    texts = said(await listed(live, path))
    assert sorted(texts[::2]) == [f"{number}?" for number in range(4)]
    assert texts[1::2] == ["Hi"] * 4


async def test_what_comes_in_between_stays(live: Shim) -> None:
    path = (await begun(live))["id"]
    live.runtime.before["UpdateObject"].append(adds(live.runtime, path, "between"))
    await turn(live, path, "Hello")
    assert said(await listed(live, path)) == ["between", "Hello", "Yes."]


@pytest.mark.parametrize("streams", [False, True])
async def test_one_that_the_conversation_has_no_room_for(live: Shim, streams: bool) -> None:
    path = (await begun(live))["id"]
    live.will_say("Hi")
    live.runtime.before["UpdateObject"].append(fails("INVALID_FIELD", field="data"))
    if streams:
        told = await events(live, conversation=path)  # their numbers have no gap
        assert [event["type"] for event in told[-2:]] == ["error", "response.failed"]
        failed = told[-1]["response"]
        assert failed["error"]["code"] == "conversation_full"
        found = (await live.http.get(f"{RESPONSES}/{failed['id']}")).json()
        assert (found["status"], found["error"]) == ("failed", failed["error"])
    else:
        response = await ask(live, conversation=path)
        assert (response.status_code, response.json()["error"]["code"]) == (400, "conversation_full")
        assert [*live.runtime.objects] == [path]
    assert await listed(live, path) == []


async def test_a_conversation_that_is_deleted_meanwhile(live: Shim) -> None:
    path = (await begun(live))["id"]
    live.will_say("Hi")
    live.runtime.before["UpdateObject"].append(fails("OBJECT_NOT_FOUND"))
    response = await ask(live, conversation=path)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (*NOT_FOUND, "conversation")


async def test_what_is_refused_before_anything_is_asked(live: Shim) -> None:
    path = (await begun(live, {**user("Hello"), "id": "msg_1"}))["id"]
    for unknown in (UNKNOWN, "conv_1", ""):
        response = await ask(live, conversation=unknown)
        error = response.json()["error"]
        assert (response.status_code, error["code"], error["param"]) == (*NOT_FOUND, "conversation")
    response = await ask(live, conversation=path, input=[user("a"), {**user("b"), "id": "msg_1"}])
    assert (response.status_code, response.json()["error"]["param"]) == (400, "input[1].id")
    response = await ask(live, conversation=path, input=[])
    assert (response.status_code, response.json()["error"]["param"]) == (400, "input")
    assert live.runtime.sessions == {}


async def test_items_of_another_version_are_refused(live: Shim) -> None:
    path = (await begun(live))["id"]
    odd = KeptConversation(1, {}, [{"type": "nonsense", "id": "n_1"}])
    live.runtime.objects[path] = odd.packed()
    response = await ask(live, conversation=path)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, "conversation", "invalid_value")
