"""What has become of a session since it was found, and what fails: the conversation goes on anew, and says why."""

import asyncio
from pathlib import Path

import grpc
import pytest

from tests.unit.http_shim.shim import CHAT, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.http_shim.talk import Talk, Told
from tests.unit.http_shim.test_leaving import has_come, send
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.scripted_runtime import Fault, ScriptedRuntime, fails, fails_plainly, passes, stalls


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("SESSION_NOT_FOUND", "gone"),
        ("WORKER_LOST", "gone"),
        ("NO_WORKER", "gone"),
        ("SNAPSHOT_REFUSED", "gone"),
        ("INVARIANT_VIOLATED", "gone"),
        ("BOUNDARY_NOT_REACHABLE", "gone"),
        ("HISTORY_LENGTH_MISMATCH", "busy"),
        ("HISTORY_FULL", "full"),
    ],
)
async def test_a_session_that_ends_after_it_was_found(talk: Talk, reason: str, why: str) -> None:
    first = await talk.says("Hello")
    num_tries = 5 if reason == "NO_WORKER" else 1  # in each of which a worker might come
    talk.shim.runtime.before["Turn"].extend([fails(reason, part="session")] * num_tries)
    told = await talk.says("And?")
    assert told.short == ("new", why)
    assert (told.reused, told.id != first.id) == (0, True)
    assert talk.history(told) == talk.written()


async def test_a_new_session_that_fails_is_not_tried_twice(live: Shim) -> None:
    live.runtime.before["Turn"].append(fails("SESSION_NOT_FOUND"))
    assert (await live.chat()).status_code == 503
    assert live.runtime.calls.count("Turn") == 1


async def test_a_runtime_without_capacity_says_so(talk: Talk) -> None:
    await talk.says("Hello")
    talk.shim.runtime.before["Turn"].append(fails("QUEUE_TIMED_OUT", retry_after_seconds=2))
    response = await talk.shim.http.post(CHAT, json={"messages": [*talk.messages, {"role": "user", "content": "And?"}]})
    assert (response.status_code, response.headers["retry-after"]) == (429, "2")
    assert "kakeya-session" not in response.headers


async def test_another_request_that_comes_in_between(talk: Talk) -> None:
    first = await talk.says("Hello")
    session = talk.shim.runtime.sessions[first.id]
    talk.shim.runtime.before["Turn"].append(lambda _: session.running.add("another"))
    told = await talk.says("And?")
    assert told.short == ("forked", "busy")
    session.running.clear()
    assert talk.history(told) == talk.written()


async def test_an_answer_that_runs_elsewhere(talk: Talk) -> None:
    first = await talk.says("Hello")
    session = talk.shim.runtime.sessions[first.id]
    session.running.add("another")
    told = await talk.says("And?")
    assert told.short == ("forked", "busy")
    session.running.clear()


async def test_a_cut_answer_that_cannot_be_taken_back(talk: Talk) -> None:
    first = await talk.says("Hello", "One, two, three", ends=False, stop="two")
    talk.shim.runtime.sessions[first.id].history += [1, 2]
    talk.shim.runtime.before["RewindSession"].append(fails("BOUNDARY_NOT_REACHABLE"))
    told = await talk.says("And?")
    assert told.short == ("forked", "cut-answer")
    assert talk.history(told) == talk.written()


async def test_a_cut_answer_that_stays_is_taken_back_later(talk: Talk) -> None:
    talk.shim.runtime.before["RewindSession"].append(fails("BOUNDARY_NOT_REACHABLE"))
    first = await talk.says("Hello", "One, two, three", ends=False, stop="two")
    told = await talk.says("And?")
    assert told.short == ("continued", "cut-answer")
    assert told.id == first.id
    assert talk.history(told) == talk.written()


async def test_a_beginning_without_a_tag(older: Shim) -> None:
    await _without_a_tag(Talk(older), "answer_start", [])


async def test_an_end_without_a_tag(talk: Talk) -> None:
    await _without_a_tag(talk, "answer_end", [] if talk.shim.runtime.has_search else [passes])


async def _without_a_tag(talk: Talk, place: str, before: list[Fault]) -> None:
    first = await talk.says("Hello")
    talk.shim.runtime.before["TagTurn"].extend([*before, fails("BOUNDARY_NOT_REACHABLE")])
    await talk.says("And?")
    text = (await talk.shim.http.get("/metrics")).text
    assert f'kakeya_http_failed_tags_total{{place="{place}"}} 1.0' in text
    told = await talk.says("Well?")
    assert told.state == "continued"
    assert told.why == ("next-turn" if place == "answer_start" else "cut-answer")
    assert told.id == first.id
    assert talk.history(told) == talk.written()


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_session_without_any_tag(older: Shim, is_first: bool) -> None:
    """None could find it; one that was there before goes back to where it is found."""
    talk = Talk(older)
    if not is_first:
        await talk.says("Hello")
    before = dict(talk.shim.runtime.sessions)
    length = [len(session.history) for session in before.values()]
    talk.shim.runtime.before["TagTurn"].extend([fails("BOUNDARY_NOT_REACHABLE")] * 2)
    await talk.says("And?")
    assert talk.shim.runtime.sessions == before
    assert [len(session.history) for session in before.values()] == length
    assert (await talk.says("Well?")).state == ("new" if is_first else "continued")


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_before_anything_is_appended(live: Shim, stream: bool) -> None:
    live.runtime.before["AppendTokens"].append(stalls)
    _, writer = await send(live, stream=stream)
    await has_come(live, "AppendTokens")
    writer.close()
    await live.nothing_left()


async def test_leaving_before_anything_is_appended_to_a_session(talk: Talk) -> None:
    first = await talk.says("Hello")
    length = len(talk.shim.runtime.sessions[first.id].history)
    talk.shim.runtime.after["AppendTokens"].append(stalls)
    messages = [*talk.messages, {"role": "user", "content": "And?"}]
    _, writer = await send(talk.shim, stream=True, messages=messages)
    await has_come(talk.shim, "AppendTokens", 2)
    writer.close()
    await asyncio.to_thread(talk.shim.runtime.wait_for, lambda: not talk.shim.runtime.after["AppendTokens"])
    told = await talk.says("Well?")
    if talk.shim.runtime.has_search:  # what the other request asked has its tag: its client may come again
        assert (told.short, told.reused) == (("forked", "earlier-place"), length)
    else:
        assert told.short == ("continued", "next-turn")
        assert (told.id, told.reused) == (first.id, length), "what came of the other request is taken back"
    assert talk.history(told) == talk.written()


async def test_a_failure_while_it_generates(talk: Talk) -> None:
    first = await talk.says("Hello")
    talk.messages.append({"role": "user", "content": "And?"})
    talk.shim.runtime.after["Generate"].append(fails("INVARIANT_VIOLATED"))
    assert (await talk.shim.http.post(CHAT, json={"messages": talk.messages, "max_tokens": 3})).status_code == 500
    await asyncio.to_thread(talk.shim.runtime.wait_for, lambda: bool(talk.shim.runtime.requests["RewindSession"]))
    told = await talk.asks()
    assert told.id == first.id


async def test_a_runtime_that_finds_nothing(older: Shim) -> None:
    """One of an older version still: each request has a session of its own."""
    live = older
    live.runtime.before["FindSession"].append(fails_plainly(grpc.StatusCode.UNIMPLEMENTED))
    told = Told.by(await live.chat(max_tokens=3))
    assert (told.short, told.id) == (("new", "off"), "")
    await live.nothing_left()
    live.runtime.before["FindSession"].append(fails_plainly(grpc.StatusCode.UNKNOWN))
    assert (await live.chat()).status_code == 500


@pytest.mark.parametrize("fault", [None, fails("HISTORY_LENGTH_MISMATCH")])
async def test_prompts_that_go_in_parts(runtime: ScriptedRuntime, tokenizer_dir: Path, fault: Fault | None) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--live-sessions", "on", "--max-append-tokens", "30") as shim:
        talk = Talk(shim)
        first = await talk.says("Hello, hello, hello, hello")
        assert runtime.calls[1:] == ["FindSession", "CreateSession", "AppendTokens", "Turn", "TagTurn", "TagTurn"]
        runtime.calls.clear()
        if fault is not None:
            runtime.before["AppendTokens"].append(fault)
        told = await talk.says("Hello, hello, hello, hello, hello")
        assert told.short == (("continued", "next-turn") if fault is None else ("new", "busy"))
        assert (told.id == first.id) == (fault is None)
        assert talk.history(told) == talk.written()


async def test_a_new_session_whose_parts_fail(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--live-sessions", "on", "--max-append-tokens", "5") as shim:
        runtime.before["AppendTokens"].extend([passes, fails("WORKER_LOST")])
        assert (await shim.chat()).status_code == 503
        await shim.nothing_left()
        runtime.before["AppendTokens"].extend([passes, fails("WORKER_LOST")])
        runtime.before["CloseSession"].append(fails("INVALID_FIELD"))
        assert (await shim.chat()).status_code == 503


async def test_a_template_that_writes_the_past_anew(runtime: ScriptedRuntime, tmp_path: Path) -> None:
    tiny_tokenizer.save(tmp_path, template=True)
    turned = tiny_tokenizer.TEMPLATE.replace("for m in messages", "for m in messages | reverse")
    (tmp_path / "chat_template.jinja").write_text(turned)
    async with serving_shim(runtime, tmp_path, "--live-sessions", "on") as shim:
        talk = Talk(shim)
        first = await talk.says("Hello")
        told = await talk.says("And?")
        assert told.short == ("new", "template")
        assert told.id != first.id


@pytest.mark.parametrize("is_head", [True, False])
@pytest.mark.parametrize(
    ("does", "code"), [("raise_exception('no')", "invalid_value"), ("'a' * 10**8", "template_stopped")]
)
async def test_a_template_that_fails(
    runtime: ScriptedRuntime, tmp_path: Path, does: str, code: str, is_head: bool
) -> None:
    """On the head, or on what stands behind an answer: the request is refused as where all is rendered."""
    tiny_tokenizer.save(tmp_path, template=True)
    fails_at = "fails" if is_head else "fails and messages[-1].content == 'And?'"
    failing = f"{{% if {fails_at} %}}{{{{ {does} }}}}{{% endif %}}"
    (tmp_path / "chat_template.jinja").write_text(failing + tiny_tokenizer.TEMPLATE)
    async with serving_shim(runtime, tmp_path, "--live-sessions", "on") as shim:
        talk = Talk(shim)
        await talk.says("Hello", chat_template_kwargs={"fails": False})
        body = {"messages": [*talk.messages, {"role": "user", "content": "And?"}]}
        refused = await shim.http.post(CHAT, json={**body, "chat_template_kwargs": {"fails": True}})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, code), refused.text
        assert (await talk.says("Well?")).state == "continued"


async def test_a_suffix_that_is_too_long(runtime: ScriptedRuntime, tokenizer_dir: Path) -> None:
    async with serving_shim(runtime, tokenizer_dir, "--live-sessions", "on", "--max-prompt-tokens", "100") as shim:
        talk = Talk(shim)
        await talk.says("Hello")
        messages = [*talk.messages, {"role": "user", "content": "a" * 101}]
        response = await shim.http.post(CHAT, json={"messages": messages})
        assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")
        for number in range(3):
            told = await talk.says("a" * 40)
            assert told.state == "continued", number
        assert told.reused > 100, "as long as the conversation is, each turn is short"
