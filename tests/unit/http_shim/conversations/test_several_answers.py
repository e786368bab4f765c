"""Several answers to one chat: one prefill, one session that stays, and forks of it that end."""

import asyncio

import pytest

from kakeya_http_shim.conversations import branches
from kakeya_http_shim.conversations.branches import Branches, Source
from kakeya_http_shim.conversations.said import Said
from tests.unit.http_shim.shim import CHAT, Shim, data
from tests.unit.http_shim.talk import Talk, Told
from tests.unit.sdk.scripted_runtime import fails


@pytest.mark.parametrize("turn", [1, 2])
async def test_one_prefill_and_forks(talk: Talk, turn: int) -> None:
    for _ in range(turn - 1):
        await talk.says("Hello")
    num_appends = len(talk.shim.runtime.requests["AppendTokens"])
    talk.messages.append({"role": "user", "content": "And?"})
    for text in ("One.", "Two.", "Three."):
        talk.shim.will_say(text)
    response = await talk.shim.http.post(CHAT, json={"messages": talk.messages, "n": 3})
    told = Told.by(response)
    assert told.short == (("new", "first-turn") if turn == 1 else ("continued", "next-turn"))
    texts = [choice["message"]["content"] for choice in response.json()["choices"]]
    assert sorted(texts) == ["One.", "Three.", "Two."]
    assert response.json()["usage"]["prompt_tokens"] == told.appended + told.reused
    assert response.json()["system_fingerprint"]
    prefilled = [len(request.token_ids) for request in talk.shim.runtime.requests["AppendTokens"][num_appends:]]
    assert sorted(prefilled) == [0, 0, told.appended]
    await asyncio.to_thread(talk.shim.runtime.wait_for, lambda: list(talk.shim.runtime.sessions) == [told.id])
    talk.messages.append({"role": "assistant", "content": texts[0]})
    assert talk.history(told) == talk.written()
    assert (await talk.says("Well?")).short == ("continued", "next-turn")


async def test_another_answer_than_the_first_is_chosen(talk: Talk) -> None:
    talk.messages.append({"role": "user", "content": "Hello"})
    for text in ("One.", "Two."):
        talk.shim.will_say(text)
    response = await talk.shim.http.post(CHAT, json={"messages": talk.messages, "n": 2})
    talk.messages.append(response.json()["choices"][1]["message"])
    told = await talk.says("And?")
    assert told.short == ("forked", "edited")
    assert talk.history(told) == talk.written()


async def test_a_stream(live: Shim) -> None:
    for text in ("One.", "Two."):
        live.will_say(text)
    body = {"messages": [{"role": "user", "content": "Hello"}], "n": 2, "stream": True}
    response = await live.http.post(CHAT, json=body)
    assert Told.by(response).short == ("new", "first-turn")
    texts = ["", ""]
    for event in data(response.text.splitlines())[:-1]:
        for choice in event["choices"]:
            texts[choice["index"]] += choice["delta"].get("content", "")
    assert sorted(texts) == ["One.", "Two."]


async def test_where_the_first_cannot_begin_none_does(live: Shim) -> None:
    live.runtime.before["CreateSession"].append(fails("QUEUE_TIMED_OUT"))
    response = await live.http.post(CHAT, json={"messages": [{"role": "user", "content": "Hello"}], "n": 3})
    assert response.status_code == 429
    await live.nothing_left()


async def test_where_the_first_fails_behind_its_prompt(live: Shim) -> None:
    live.runtime.before["Generate"].extend([fails("WORKER_LOST")] * 2)
    response = await live.http.post(CHAT, json={"messages": [{"role": "user", "content": "Hello"}], "n": 2})
    assert response.status_code == 503
    await live.nothing_left()


async def test_a_fork_that_comes_too_late(live: Shim) -> None:
    """It is made from what the runtime remembers."""
    live.runtime.before["Turn"].append(fails("HISTORY_LENGTH_MISMATCH"))
    response = await live.http.post(CHAT, json={"messages": [{"role": "user", "content": "Hello"}], "n": 2})
    assert response.status_code == 200
    assert len(response.json()["choices"]) == 2


@pytest.mark.parametrize(("pauses_seconds", "status"), [((0.0,) * 2, 503), ((0.01,) * 10_000, 200)])
async def test_a_fork_that_comes_before_the_first_token(
    live: Shim, monkeypatch: pytest.MonkeyPatch, pauses_seconds: tuple[float, ...], status: int
) -> None:
    """The first one's answer may itself still run when the last of these faults is over."""
    monkeypatch.setattr(branches, "_BUSY_PAUSES_SECONDS", pauses_seconds)
    live.runtime.before["Turn"].extend([fails("OPERATION_RUNNING")] * 4)
    response = await live.http.post(CHAT, json={"messages": [{"role": "user", "content": "Hello"}], "n": 2})
    assert response.status_code == status


async def test_where_a_fork_fails(live: Shim) -> None:
    live.runtime.before["Turn"].extend([fails("NO_CAPACITY")] * 2)
    response = await live.http.post(CHAT, json={"messages": [{"role": "user", "content": "Hello"}], "n": 2})
    assert response.status_code == 429


async def test_a_session_that_is_gone(talk: Talk) -> None:
    await talk.says("Hello")
    talk.messages.append({"role": "user", "content": "And?"})
    talk.shim.runtime.before["AppendTokens"].append(fails("SESSION_NOT_FOUND"))
    response = await talk.shim.http.post(CHAT, json={"messages": talk.messages, "n": 2, "max_tokens": 5})
    assert Told.by(response).short == ("new", "gone")


async def test_another_request_takes_back_what_the_first_has_appended(talk: Talk) -> None:
    """The first begins anew, and so does one that had not branched off yet; header and usage say where that was."""
    await talk.says("Hello")
    talk.messages.append({"role": "user", "content": "And?"})
    for method in ("Generate", "Turn"):
        talk.shim.runtime.before[method].append(fails("HISTORY_LENGTH_MISMATCH"))
    response = await talk.shim.http.post(CHAT, json={"messages": talk.messages, "n": 2, "max_tokens": 5})
    told = Told.by(response)
    assert told.short == ("new", "busy")
    usage = response.json()["usage"]
    assert usage["kakeya"]["session"]["id"] == told.id
    assert usage["prompt_tokens"] == told.appended
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0
    assert len(response.json()["choices"]) == 2


async def test_it_waits_for_the_others_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "_FORK_SECONDS", 0.01)
    several = Branches(1)
    first, second = (Source("counter.1", place, Said("new", "counter.1", place, 0, "first-turn")) for place in (5, 6))
    with several.beginning():
        await several.begin(first)
        await several.begin(second)
    assert await several.source() == first, "they are off from there already"
    assert await several.begun() == second


async def test_a_first_one_that_fails_fails_them_all() -> None:
    several = Branches(1)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"), several.beginning():
            raise ValueError("no")
    for waited_for in (several.source, several.begun):
        with pytest.raises(ValueError, match="no"):
            await waited_for()
