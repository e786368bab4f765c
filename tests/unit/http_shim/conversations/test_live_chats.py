"""Chats that are sent whole go on in their session: appended is what is new, and the history is the conversation."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kakeya_http_shim.models.model_tokenizer import ModelTokenizer
from kakeya_http_shim.text.answer_form import AnswerForm
from kakeya_http_shim.text.delta import Delta
from kakeya_stubs.v1 import runtime_pb2 as pb
from tests.unit.http_shim.shim import CHAT, Shim, data
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.talk import Talk, Told
from tests.unit.http_shim.test_leaving import has_come
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails

SYSTEM = {"role": "system", "content": "Be kind."}


def behind(shim: Shim, text: str) -> int:
    """Tokens of what the template writes behind an answer, if this is said then."""
    return len(shim.tokens(f"\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"))


async def test_each_turn_appends_its_own_tokens(talk: Talk) -> None:
    talk.messages.append(SYSTEM)
    first = await talk.says("Hello", "Hi there!")
    assert first.short == ("new", "first-turn")
    assert (first.reused, first.appended) == (0, len(talk.shim.tokens(talk.written())) - 10)
    for number in range(5):
        length = len(talk.shim.runtime.sessions[first.id].history)
        talk.shim.runtime.calls.clear()
        told = await talk.says(f"And {number}?", f"I say {number}.")
        assert told == Told("continued", first.id, behind(talk.shim, f"And {number}?"), length, "next-turn")
        calls = [each for each in talk.shim.runtime.calls if each != "ListModels"]  # once a second
        has_search = talk.shim.runtime.has_search
        assert calls == (["Turn", "TagTurn"] if has_search else ["FindSession", "Turn", "TagTurn", "TagTurn"])
        assert talk.history(told) == talk.written()
    assert len(talk.shim.runtime.sessions) == 1


async def test_the_session_that_it_makes(talk: Talk) -> None:
    talk.messages.append(SYSTEM)
    await talk.says("Hello")
    (created,) = talk.shim.runtime.requests["CreateSession"]
    assert created.pin == len(talk.shim.tokens("<|im_start|>system\nBe kind.<|im_end|>\n"))
    assert (created.ttl_seconds, created.park_after_seconds) == (86_400, 1_800)
    assert created.disposable
    assert not created.ephemeral


async def test_a_stream_says_it_before_its_first_event(talk: Talk) -> None:
    first = await talk.says("Hello")
    talk.messages.append({"role": "user", "content": "And?"})
    talk.shim.will_say("Well.")
    body = {"messages": talk.messages, "stream": True, "stream_options": {"include_usage": True}}
    response = await talk.shim.http.post(CHAT, json=body)
    told = Told.by(response)
    assert (told.state, told.id) == ("continued", first.id)
    usage = data(response.text.splitlines())[-2]["usage"]
    assert usage["kakeya"]["session"] == vars(told)
    assert usage["prompt_tokens_details"]["cached_tokens"] == told.reused


async def test_the_end_is_tagged_before_it_is_told(talk: Talk) -> None:
    """Else the next request could come before its tag."""
    await talk.says("Hello")
    talk.messages.append({"role": "user", "content": "And?"})
    talk.shim.will_say("Well.")
    num_tags = len(talk.shim.runtime.requests["TagTurn"])
    async with talk.shim.http.stream("POST", CHAT, json={"messages": talk.messages, "stream": True}) as response:
        async for line in response.aiter_lines():
            if '"finish_reason":"stop"' in line:
                num_more = 1 if talk.shim.runtime.has_search else 2
                assert len(talk.shim.runtime.requests["TagTurn"]) == num_tags + num_more
                break
        else:
            pytest.fail("no end was told")


@pytest.mark.parametrize("turn", [1, 2])
async def test_regenerating_appends_nothing(talk: Talk, turn: int) -> None:
    for number in range(turn):
        first = await talk.says(f"Hello {number}", "One.")
    del talk.messages[-1]
    again = await talk.asks("Two.")
    assert again.short == ("forked", "regenerated"), "the first answer stays, for the client may go back to it"
    assert (again.appended, again.id != first.id) == (0, True)
    assert talk.history(again) == talk.written()
    told = await talk.says("And?")
    assert (told.state, told.id) == ("continued", again.id)


async def test_an_answer_that_max_tokens_cut(talk: Talk) -> None:
    first = await talk.says("Hello", "Hi there!", ends=False, max_tokens=5)
    assert talk.messages[-1]["content"] == "Hi th"
    told = await talk.says("Go on", "Well.")
    assert told.short == ("continued", "next-turn")
    assert (told.id, told.appended) == (first.id, 1 + behind(talk.shim, "Go on")), "and the end of the turn"
    assert talk.history(told) == talk.written()


async def test_an_answer_that_a_stop_text_cut(talk: Talk) -> None:
    first = await talk.says("Hello", "Thought: Observation: none", ends=False, stop="Observation:")
    assert talk.messages[-1]["content"] == "Thought: "
    assert talk.history(first) == talk.shim.tokenizer.render(talk.messages[:-1]), "the rest is gone again"
    told = await talk.says("Observation: two", "Well.")
    assert told.short == ("continued", "cut-answer")
    assert told.id == first.id
    assert told.appended == len("Thought: ") + 1 + behind(talk.shim, "Observation: two")
    assert talk.history(told) == talk.written()


async def test_an_answer_that_the_client_cut(talk: Talk) -> None:
    """As the one above, where the client sends back less than it got."""
    await talk.says("Hello", "Hi there!")
    talk.messages[-1]["content"] = "Hi"
    told = await talk.says("And?", "Well.")
    assert told.short == ("forked", "edited")
    assert talk.history(told) == talk.written()


async def test_a_control_token_within_an_answer(talk: Talk) -> None:
    """It has no text: what the client got is not all that was said."""
    start = talk.shim.tokens("<|im_start|>")[0]
    end = talk.shim.tokenizer.eos_token_ids[0]
    talk.messages.append({"role": "user", "content": "Hello"})
    talk.shim.runtime.answers.append([*talk.shim.tokens("Hi"), start, *talk.shim.tokens(" you"), end])
    response = await talk.shim.http.post(CHAT, json={"messages": talk.messages})
    talk.messages.append({"role": "assistant", "content": response.json()["choices"][0]["message"]["content"]})
    assert talk.messages[-1]["content"] == "Hi you"
    told = await talk.says("And?")
    assert told.short == ("continued", "cut-answer")
    assert talk.history(told) == talk.written()


async def test_an_answer_that_a_stop_token_cut(talk: Talk) -> None:
    stop = talk.shim.tokens("!")[0]
    await talk.says("Hello", "Hi! You", stop_token_ids=[stop])
    assert talk.messages[-1]["content"] == "Hi"
    told = await talk.says("And?")
    assert told.short == ("continued", "cut-answer")
    assert talk.history(told) == talk.written()


async def test_a_template_that_does_not_write_its_head_alone(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    """What a conversation is found by cannot be told then."""
    tiny_tokenizer.save(tmp_path, template=True)
    strict = "{% if strict and messages[-1].content != 'Hello' %}{{ raise_exception('no') }}{% endif %}"
    (tmp_path / "chat_template.jinja").write_text(strict + tiny_tokenizer.TEMPLATE)
    async with serving_shim(runtime, tmp_path, "--live-sessions", "on") as shim:
        told = Told.by(await shim.chat(chat_template_kwargs={"strict": True}, max_tokens=3))
        assert told.short == ("new", "off")
        await shim.nothing_left()
        refused = await shim.chat(chat_template_kwargs={"strict": True}, messages=[{"role": "user", "content": "a"}])
        assert refused.status_code == 400


def test_what_is_told_must_be_what_the_tokens_say(tokenizer_dir: Path) -> None:
    tokenizer = ModelTokenizer(str(tokenizer_dir))
    token_ids = tokenizer.encode("Yes.")
    for content, reasoning, is_told in (("Yes.", "", True), ("Yes", "", False), ("Yes.", "hm", False)):
        told = replace(Delta.saying(content), reasoning=reasoning)
        assert AnswerForm(tokenizer).is_told_by(token_ids, told) == is_told


async def test_white_space_around_an_answer_does_not_matter(talk: Talk) -> None:
    await talk.says("Hello", " Hi there!\n")
    talk.messages[-1]["content"] = [{"type": "text", "text": "Hi there!"}]
    assert (await talk.says("And?")).short == ("continued", "next-turn")


@pytest.mark.parametrize("number", [0, 2])
async def test_an_edited_message(talk: Talk, number: int) -> None:
    for text in ("One", "Two", "Three"):
        told = await talk.says(text)
    talk.messages[number]["content"] = "Another"
    edited = await talk.says("And?")
    assert edited.short == (("new", "not-found") if number == 0 else ("forked", "edited"))
    assert edited.id != told.id
    assert talk.history(edited) == talk.written()


async def test_another_system_message_is_another_conversation(talk: Talk) -> None:
    talk.messages.append(SYSTEM)
    await talk.says("Hello")
    talk.messages[0] = {"role": "system", "content": "Be rude."}
    assert (await talk.says("And?")).short == ("new", "not-found")


async def test_a_conversation_that_branches(talk: Talk) -> None:
    first = await talk.says("Hello")
    other = Talk(talk.shim, talk.messages.copy())
    await talk.says("This?")
    told = await other.says("That?")
    assert told.short == ("forked", "earlier-place")
    assert told.id != first.id
    for each in (talk, other):
        again = await each.says("And?")
        assert again.state == "continued"
        assert each.history(again) == each.written()


@pytest.mark.parametrize("is_same", [True, False], ids=["the same", "another"])
async def test_two_at_one_place_at_once(talk: Talk, is_same: bool) -> None:
    first = await talk.says("Hello")
    texts = ["And?", "And?" if is_same else "Well?"]
    one, other = ({"messages": [*talk.messages, {"role": "user", "content": text}], "max_tokens": 5} for text in texts)
    ends = threading.Event()
    talk.shim.runtime.after["Generate"].append(lambda context: (ends.wait(60), None)[1])
    running = asyncio.create_task(talk.shim.http.post(CHAT, json=one))
    await has_come(talk.shim, "Generate", 2)
    await has_come(talk.shim, "TagTurn", 1 if talk.shim.runtime.has_search else 3)
    forked = Told.by(await talk.shim.http.post(CHAT, json=other))
    ends.set()
    told = Told.by(await running)
    assert told.short == ("continued", "next-turn")
    assert forked.short == ("forked", "regenerated" if is_same else "earlier-place")
    assert told.id == first.id != forked.id
    lengths = {
        len(talk.shim.runtime.sessions[each.id].history) - each.reused - each.appended for each in (told, forked)
    }
    assert lengths == {5}, "neither stands behind the other"


async def test_leaving_a_stream(talk: Talk) -> None:
    first = await talk.says("Hello")
    talk.messages.append({"role": "user", "content": "And?"})
    talk.shim.runtime.hold_after = 3
    async with talk.shim.http.stream("POST", CHAT, json={"messages": talk.messages, "stream": True}) as response:
        async for _ in response.aiter_lines():
            break
    talk.shim.runtime.hold_after = None
    await asyncio.to_thread(talk.shim.runtime.wait_for, lambda: len(talk.shim.runtime.requests["RewindSession"]) >= 1)
    await asyncio.to_thread(
        talk.shim.runtime.wait_for,
        lambda: talk.history(first).endswith("<|im_start|>assistant\n"),
    )
    told = await talk.asks("Well.")
    assert told.short == ("continued", "regenerated")
    assert (told.id, told.appended) == (first.id, 0)
    assert talk.history(told) == talk.written()


async def test_leaving_a_stream_takes_back_nothing_of_another_request(talk: Talk) -> None:
    first = await talk.says("Hello")
    runtime, length = talk.shim.runtime, len(talk.history(first))

    def another_comes(_: object) -> None:
        runtime.sessions[first.id].last_generate = ("turn-of-another", 0)

    runtime.before["RewindSession"].append(another_comes)
    runtime.hold_after = 3
    messages = [*talk.messages, {"role": "user", "content": "And?"}]
    async with talk.shim.http.stream("POST", CHAT, json={"messages": messages, "stream": True}) as response:
        async for _ in response.aiter_lines():
            break
    runtime.hold_after = None
    await asyncio.to_thread(runtime.wait_for, lambda: bool(runtime.requests["RewindSession"]))
    (asked,) = runtime.requests["RewindSession"]
    turns = runtime.requests["Turn"]
    assert asked.op_id == (turns[-1].generate.op_id if runtime.has_search else f"turn-{len(turns)}")
    assert len(talk.history(first)) > length


async def test_leaving_in_a_fork_does_not_close_it(talk: Talk) -> None:
    """It has tags from its first moment, so that another request may be in it."""
    await talk.says("Hello")
    await talk.says("And?")
    runtime, before = talk.shim.runtime, {*talk.shim.runtime.sessions}
    runtime.before["TagTurn"].extend([fails("BOUNDARY_NOT_REACHABLE")] * 2)
    runtime.hold_after = 3
    edited = {"messages": [*talk.messages[:2], {"role": "user", "content": "Or?"}], "stream": True}
    async with talk.shim.http.stream("POST", CHAT, json=edited) as response:
        assert response.headers["kakeya-session"].startswith("forked; ")
        async for _ in response.aiter_lines():
            break
    runtime.hold_after = None
    await asyncio.to_thread(runtime.wait_for, lambda: bool(runtime.requests["RewindSession"]))
    assert len({*runtime.sessions} - before) == 1
    assert not runtime.requests["CloseSession"]


async def test_without_live_sessions_nothing_is_said(shim: Shim) -> None:
    response = await shim.chat()
    assert "kakeya-session" not in response.headers
    assert "session" not in response.json()["usage"]["kakeya"]


async def test_what_goes_on_with_a_message_has_no_live_session(live: Shim) -> None:
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    response = await live.chat(messages=messages, continue_final_message=True, max_tokens=3)
    told = Told.by(response)
    assert (told.short, told.id, told.reused) == (("new", "off"), "", 0)
    assert response.json()["usage"]["kakeya"]["session"] == {
        "state": "new",
        "appended": told.appended,
        "reused": 0,
        "why": "off",
    }
    await live.nothing_left()


async def test_what_goes_on_with_an_answer_to_another_one(talk: Talk) -> None:
    """The last message may be the model's own: another one of its follows."""
    first = await talk.says("Hello")
    told = await talk.asks("And more.")
    assert told.short == ("continued", "next-turn")
    assert told.id == first.id
    assert talk.history(told) == talk.written()


async def test_completions_have_none(live: Shim) -> None:
    response = await live.complete(max_tokens=3)
    assert "kakeya-session" not in response.headers
    assert "session" not in response.json()["usage"]["kakeya"]
    await live.nothing_left()


async def test_what_was_said_is_counted(talk: Talk) -> None:
    for text in ("One", "Two"):
        told = await talk.says(text)
    text = (await talk.shim.http.get("/metrics")).text
    assert 'kakeya_http_sessions_total{state="new"} 1.0' in text
    assert 'kakeya_http_sessions_total{state="continued"} 1.0' in text
    assert f"kakeya_http_reused_tokens_total {told.reused}.0" in text


async def test_on_overflow_is_part_of_a_session(talk: Talk) -> None:
    await talk.says("Hello")
    told = await talk.says("And?", kakeya={"on_overflow": "refuse"})
    assert told.short == ("new", "not-found")
    assert talk.shim.runtime.requests["CreateSession"][-1].on_overflow == pb.OVERFLOW_POLICY_REFUSE


async def test_a_shim_that_starts_anew_goes_on(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    messages: list[dict[str, Any]] = []
    told = []
    for text in ("One", "Two", "Three"):
        async with serving_shim(runtime, tokenizer_dir, "--live-sessions", "on") as shim:
            told.append(await Talk(shim, messages).says(text))
    assert [each.short for each in told] == [("new", "first-turn"), *[("continued", "next-turn")] * 2]
    assert len({each.id for each in told}) == 1
