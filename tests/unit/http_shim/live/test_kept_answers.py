"""Answers that outlive their connection."""

import asyncio
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from kakeya_http_shim.live import kept_answers
from kakeya_shared.process.detached_tasks import DetachedTasks
from tests.unit.http_shim.shim import Shim, data
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, stalls

ANSWER, OTHER = "/ui/answers/0123456789abcdef", "/ui/answers/0123456789abcdee"
QUESTION: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "stream": True}


def _text(body: str) -> str:
    events = data(body.splitlines())
    return "".join(each["choices"][0]["delta"].get("content", "") for each in events if each != "[DONE]")


async def test_an_answer_can_be_read_twice(shim: Shim) -> None:
    shim.will_say("Good day to you")
    first = await shim.http.post(ANSWER, json=QUESTION)
    assert first.status_code == 200
    assert first.headers["content-type"].startswith("text/event-stream")
    assert _text(first.text) == "Good day to you"
    again = await shim.http.get(ANSWER)
    assert (again.text, again.headers["content-type"]) == (first.text, first.headers["content-type"])


async def test_one_whose_reader_has_left_in_the_middle_goes_on(shim: Shim, runtime: ScriptedRuntime) -> None:
    said = " ".join(f"word{number}" for number in range(20))
    shim.will_say(said)
    runtime.token_seconds = 0.01
    async with shim.http.stream("POST", ANSWER, json=QUESTION) as response:
        await anext(response.aiter_lines())
    assert _text((await shim.http.get(ANSWER)).text) == said
    assert runtime.num_cancelled == 0


async def test_one_that_is_left_before_it_began_says_so(shim: Shim, runtime: ScriptedRuntime) -> None:
    runtime.before["Turn"].append(stalls)
    asking = asyncio.create_task(shim.http.post(ANSWER, json=QUESTION))

    async def is_left() -> bool:
        return (await shim.http.delete(ANSWER)).status_code == 204

    while not await is_left():
        await asyncio.sleep(0.01)
    answer = await asking
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "answer_left")


async def test_one_that_nobody_reads_is_left_after_a_while(
    shim: Shim, runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_answers, "ALONE_SECONDS", 0.05)
    runtime.token_seconds = 0.01
    async with shim.http.stream("POST", ANSWER, json={**QUESTION, "max_tokens": 100_000}) as response:
        await anext(response.aiter_lines())
    await shim.nothing_left()
    assert runtime.num_cancelled == 1


async def test_its_client_can_leave(shim: Shim, runtime: ScriptedRuntime) -> None:
    runtime.token_seconds = 0.01
    async with shim.http.stream("POST", ANSWER, json={**QUESTION, "max_tokens": 100_000}) as response:
        lines = response.aiter_lines()
        await anext(lines)
        assert (await shim.http.delete(ANSWER)).status_code == 204
        assert [line async for line in lines if "[DONE]" in line] == []
    await shim.nothing_left()


async def test_what_a_chat_is_refused_for_is_said_here(shim: Shim) -> None:
    refused = await shim.http.post(ANSWER, json={"messages": "none"})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "messages"


async def test_ids(shim: Shim) -> None:
    shim.will_say("Good day")
    await shim.http.post(ANSWER, json=QUESTION)
    twice = await shim.http.post(ANSWER, json=QUESTION)
    assert (twice.status_code, twice.json()["error"]["code"]) == (409, "answer_exists")
    unknown = await shim.http.get(OTHER)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "answer_not_found")
    assert (await shim.http.get("/ui/answers/short")).status_code == 400
    foreign = await shim.http.get(ANSWER, headers={"authorization": "Bearer another"})
    assert foreign.status_code == 404


async def test_one_that_has_ended_makes_room_and_one_that_is_under_way_does_not(
    shim: Shim, runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_answers, "MAX_KEPT", 1)
    shim.will_say("Good day", "Good night")
    await shim.http.post(ANSWER, json=QUESTION)
    assert _text((await shim.http.post(OTHER, json=QUESTION)).text) == "Good night"
    assert [(await shim.http.get(url)).status_code for url in (ANSWER, OTHER)] == [404, 200]
    runtime.token_seconds = 0.01
    async with shim.http.stream("POST", ANSWER, json={**QUESTION, "max_tokens": 100_000}) as response:
        await anext(response.aiter_lines())
        refused = await shim.http.post(OTHER, json=QUESTION)
        assert refused.status_code == 429


async def test_one_that_made_room_is_not_forgotten_in_the_place_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    monkeypatch.setattr(kept_answers, "MAX_KEPT", 1)
    monkeypatch.setattr(kept_answers, "KEPT_SECONDS", 0.05)
    tasks = DetachedTasks()
    kept, scope = kept_answers.KeptAnswers(nothing, tasks), {"state": {"api_key": ""}}
    kept.ask("one", scope, b"")
    await tasks.drain(60)
    monkeypatch.setattr(kept_answers, "KEPT_SECONDS", 600)
    for answer_id in ("two", "one"):
        again = kept.ask(answer_id, scope, b"")
        await tasks.drain(60)
    await asyncio.sleep(0.1)  # the first's time is over before this is
    assert kept.find("one", "") is again


async def test_one_that_has_ended_is_forgotten_after_a_while(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_answers, "KEPT_SECONDS", 0.01)
    shim.will_say("Good day")
    await shim.http.post(ANSWER, json=QUESTION)

    async def is_gone() -> bool:
        return (await shim.http.get(ANSWER)).status_code == 404

    async with asyncio.timeout(60):
        while not await is_gone():
            await asyncio.sleep(0.01)
