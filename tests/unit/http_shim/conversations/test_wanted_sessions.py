"""Requests that insist on a session."""

import pytest

from tests.unit.http_shim.shim import CHAT, COMPLETIONS, HELLO, Shim
from tests.unit.http_shim.talk import Talk


async def test_a_new_one(talk: Talk) -> None:
    first = await talk.says("Hello")
    told = await talk.says("And?", headers={"kakeya-session": "new"})
    assert told.short == ("new", "asked")
    assert told.id != first.id
    again = await talk.says("Well?")
    assert (again.state, again.id) == ("continued", told.id)


async def test_the_one_that_is_named(talk: Talk) -> None:
    first = await talk.says("Hello")
    told = await talk.says("And?", headers={"kakeya-session-id": first.id})
    assert told.short == ("continued", "next-turn")


async def test_of_two_with_one_conversation_the_one_that_is_named(talk: Talk) -> None:
    first = await talk.says("Hello")
    told = await Talk(talk.shim).says("Hello", headers={"kakeya-session": "new"})
    assert told.id != first.id
    named = await talk.says("And?", headers={"kakeya-session-id": first.id})
    assert (named.state, named.id) == ("continued", first.id)


@pytest.mark.parametrize("is_known", [True, False])
async def test_messages_that_do_not_lead_there(talk: Talk, is_known: bool) -> None:
    first = await talk.says("Hello")
    other = Talk(talk.shim)
    if is_known:
        await other.says("Another")
    talk.shim.runtime.boundaries = [11, 47]
    messages = [*other.messages, {"role": "user", "content": "And?"}]
    headers = {"kakeya-session-id": first.id}
    response = await talk.shim.http.post(CHAT, json={"messages": messages}, headers=headers)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (409, "session_mismatch", "kakeya-session-id")
    assert "behind 11, 47 tokens" in error["message"]
    talk.shim.runtime.boundaries = []
    response = await talk.shim.http.post(CHAT, json={"messages": messages}, headers=headers)
    assert "behind no tokens" in response.json()["error"]["message"]


async def test_one_that_is_not_there(live: Shim) -> None:
    response = await live.http.post(CHAT, json={"messages": HELLO}, headers={"kakeya-session-id": "counter.7"})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "session_not_found")


@pytest.mark.parametrize(
    "headers",
    [
        {"kakeya-session": "old"},
        {"kakeya-session": ""},
        {"kakeya-session-id": ""},
        {"kakeya-session": "continued; id=counter.1"},
        {"kakeya-session": "new", "kakeya-session-id": "counter.1"},
    ],
)
async def test_what_cannot_be_meant(live: Shim, headers: dict[str, str]) -> None:
    response = await live.http.post(CHAT, json={"messages": HELLO}, headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_value")


async def test_requests_without_live_sessions(live: Shim) -> None:
    named = {"kakeya-session-id": "counter.1"}
    going_on = [*HELLO, {"role": "assistant", "content": "Hi"}]
    for response in (
        await live.http.post(COMPLETIONS, json={"prompt": "Once"}, headers=named),
        await live.http.post(CHAT, json={"messages": going_on, "continue_final_message": True}, headers=named),
    ):
        assert (response.status_code, response.json()["error"]["param"]) == (400, "kakeya-session-id")


async def test_where_there_are_none(shim: Shim) -> None:
    response = await shim.http.post(CHAT, json={"messages": HELLO}, headers={"kakeya-session-id": "counter.1"})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "kakeya-session-id")
    new = {"kakeya-session": "new"}
    assert (await shim.http.post(CHAT, json={"messages": HELLO, "max_tokens": 1}, headers=new)).status_code == 200
