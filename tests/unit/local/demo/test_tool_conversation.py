"""A conversation of the demo with tools: what is sent, what is made of the answers, what is shown of it."""

import io
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kakeya import AsyncClient
from kakeya_local.demo.http_exchange import Call, Completion
from kakeya_local.demo.report import DemoReport, Opened, Reading
from kakeya_local.demo.scripts import UNKNOWN, Line, Script
from kakeya_local.demo.summary import summarize, verdict
from kakeya_local.demo.tool_conversation import ToolConversation
from kakeya_local.demo.transcript import print_transcripts
from kakeya_local.demo.turn import Turn
from kakeya_local.stack.planning.http_entrance import HttpEntrance
from tests.unit.local.scripted_http import ScriptedHttp, scripted_http
from tests.unit.sdk.scripted_runtime import ScriptedRuntime

SINK, WINDOW = 10, 20
TOOL = {"type": "function", "function": {"name": "get_weather"}}
RESULT = '{"sky": "sunny"}'
ROME = {"name": "get_weather", "arguments": '{"city": "Rome"}'}
CALL = {"index": 0, "id": "call1", "type": "function", "function": ROME}


def answer(prompt: int, generated: int, session: str = "", **delta: Any) -> tuple[int, bytes]:
    """Of a session with this id; "": of one that has ended."""
    history = prompt + generated
    sight: dict[str, Any] = {"history": history, "retained": min(history, SINK + WINDOW)}
    sight["evicted"] = history - sight["retained"]
    if session:
        sight["session"] = {"id": session, "state": "continued", "appended": 5, "reused": prompt - 5}
    usage = {"prompt_tokens": prompt, "completion_tokens": generated, "kakeya": sight}
    events = [{"choices": [{"delta": delta}], "usage": None}, {"choices": [], "usage": usage}]
    return 200, "".join([*(f"data: {json.dumps(event)}\n\n" for event in events), "data: [DONE]\n\n"]).encode()


@pytest.fixture
def server() -> Iterator[ScriptedHttp]:
    with scripted_http() as server:
        yield server


@pytest.fixture
def runtime() -> Iterator[ScriptedRuntime]:
    runtime = ScriptedRuntime()
    yield runtime
    runtime.stop()


@asynccontextmanager
async def conversation(server: ScriptedHttp, runtime: ScriptedRuntime, *lines: Line) -> AsyncIterator[ToolConversation]:
    script = Script("a tool", "Be kind.", lines, (TOOL,))
    async with AsyncClient(runtime.address) as client:
        yield ToolConversation(3, script, HttpEntrance(server.address), "nano", client, SINK, WINDOW, num_pinned=SINK)


async def messages(server: ScriptedHttp, runtime: ScriptedRuntime, *lines: Line) -> list[dict[str, Any]]:
    """Of the last request, when so many lines have been said."""
    async with conversation(server, runtime, *lines) as talk:
        for number in range(1, len(lines) + 1):
            await talk.take_turn(number)
    return list(server.requests[-1][1]["messages"])


async def test_a_call_gets_its_result_and_all_is_sent_again(server: ScriptedHttp, runtime: ScriptedRuntime) -> None:
    server.answers = [answer(10, 5, content="", tool_calls=[CALL]), answer(20, 5, content="It is sunny.")]
    sent = await messages(server, runtime, Line("How is Rome?"), Line(RESULT, is_result=True), Line("Thanks!"))
    assert sent == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "How is Rome?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "call1", "type": "function", "function": ROME}]},
        {"role": "tool", "tool_call_id": "call1", "content": RESULT},
        {"role": "assistant", "content": "It is sunny."},
        {"role": "user", "content": "Thanks!"},
    ]
    assert server.requests[-1][1]["tools"] == [TOOL]


async def test_what_nothing_was_called_for_the_user_says(server: ScriptedHttp, runtime: ScriptedRuntime) -> None:
    server.answers = [answer(10, 5, content="I do not know.")]
    *_, told = await messages(server, runtime, Line("How is Rome?"), Line(RESULT, is_result=True))
    assert told == {"role": "user", "content": RESULT}


async def test_each_call_is_answered(server: ScriptedHttp, runtime: ScriptedRuntime) -> None:
    twice = [CALL, {**CALL, "index": 1, "id": "call2"}]
    server.answers = [answer(10, 5, tool_calls=twice), answer(20, 5, content="a")]
    *_, first, second = await messages(server, runtime, Line("How is Rome?"), Line(RESULT, is_result=True))
    assert [first["tool_call_id"], second["tool_call_id"]] == ["call1", "call2"]
    assert first["content"] == second["content"] == RESULT
    server.answers = [answer(10, 5, tool_calls=[CALL]), answer(20, 5, content="a")]
    *_, told, asked = await messages(server, runtime, Line("Hello!"), Line("How are you?"))
    assert told == {"role": "tool", "tool_call_id": "call1", "content": '{"error": "not known"}'}
    assert asked == {"role": "user", "content": "How are you?"}


async def test_a_turn_has_what_the_answer_cost_and_what_the_session_holds(
    server: ScriptedHttp, runtime: ScriptedRuntime
) -> None:
    lines = Line("How is Rome?", '"city": "Rome"'), Line(RESULT, is_result=True)
    async with conversation(server, runtime, *lines) as talk:
        session = await talk.client.create_session(eos_token_ids=[0])
        await session.append([1] * 7)
        id_ = session.id
        server.answers = [answer(25, 5, id_, content="So:", tool_calls=[CALL]), answer(40, 2, id_, content="It is.")]
        first, readings = await talk.take_turn(1)
        second, _ = await talk.take_turn(2)
        assert talk.session_id == id_
        info = await session.info()
    assert readings == [Reading(3, 1, "info", 7, info.kv_live_bytes)]
    assert first.completion
    assert first == Turn(
        3, 1, 30, 30, 5, None, None, info.kv_live_bytes, "How is Rome?", 'So: get_weather({"city": "Rome"})',
        '"city": "Rome"', completion=first.completion,
    )  # fmt: skip
    assert first.as_expected
    assert (second.history_length, second.new_tokens) == (42, 12)
    assert (second.forgotten_tokens, second.evicted_tokens) == (12, 12)
    assert second.user == f"[tool] {RESULT}"


async def test_a_session_that_ended_holds_nothing(server: ScriptedHttp, runtime: ScriptedRuntime) -> None:
    server.answers = [answer(25, 5, content="Hello!")]
    async with conversation(server, runtime, Line("Hello!")) as talk:
        assert talk.session_id == ""
        turn, readings = await talk.take_turn(1)
    assert (turn.kv_live_bytes, readings) == (0, [])


@pytest.mark.parametrize(("prompt", "is_seen"), [(49, True), (50, False)])
async def test_what_was_told_is_out_of_sight_when_all_of_its_turn_is(
    server: ScriptedHttp, runtime: ScriptedRuntime, prompt: int, is_seen: bool
) -> None:
    """The first turn ends at 30: it is gone where 20 tokens behind the ten sinks are forgotten."""
    server.answers = [answer(25, 5, content="Hello!"), answer(prompt, 3, content="I do not know.")]
    async with conversation(server, runtime, Line("I am Ingrid."), Line("Who am I?", UNKNOWN, "Ingrid")) as talk:
        await talk.take_turn(1)
        turn, _ = await talk.take_turn(2)
    assert turn.still_in_sight == is_seen


def held(**changes: Any) -> DemoReport:
    """A conversation over gRPC, and one of three turns with tools; `changes` are of the last answer."""
    report = DemoReport("tiny", SINK, WINDOW, kv_bytes_per_token=1)
    report.sessions.append(Opened(1, "a talk", "Be brief.", SINK, WINDOW, 0))
    report.sessions.append(Opened(2, "a tool", "Be kind.", SINK, WINDOW, SINK, ("get_weather",)))
    report.turns += [Turn(1, number, 100 * number, 100, 4, 0.2, 0.1, 30) for number in (1, 2, 3)]
    told = Completion("", 0.125, 20, 5, 25, 25, 0, "nano.1", "new", 20, 0, (Call("call1", "get_weather", "{}"),))
    going = replace(told, text="a", calls=(), session_state="continued", appended=5)
    more = replace(going, prompt_tokens=30, history=35, retained=30, evicted=5, reused=25)
    last = replace(going, prompt_tokens=40, history=45, retained=30, evicted=15, reused=35)
    for number, said in enumerate([told, more, replace(last, **changes)], 1):
        turn = Turn(2, number, said.history, 10, 5, None, None, 30, f"line {number}", said.text or "get_weather({})")
        report.turns.append(replace(turn, completion=said, forgotten_tokens=said.evicted))
    return report


def test_its_figures_are_judged(capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(held(), long_histories=False) == 0
    assert verdict(held(reused=30, appended=10), long_histories=False) == 1
    assert capsys.readouterr().err == (
        "kakeya demo: error: conversation 2 turn 3: its session is continued and had 30 tokens, of 35 that were there\n"
    )
    assert verdict(held(evicted=14), long_histories=False) == 1
    assert "conversation 2 turn 3: usage says 40 + 5 tokens" in capsys.readouterr().err


def test_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    report, output = held(), io.StringIO()
    print_transcripts(report)
    shown = capsys.readouterr().out.partition("conversation 2, ")[2]
    assert shown.startswith(
        "a tool, over HTTP with get_weather: sink 10, window 20, the tools' and the system prompt's 10 tokens pinned\n"
    )
    _, _, header, *rows = shown.splitlines()
    assert header.split()[:3] == ["turn", "prompt", "appended"]
    assert [" ".join(row.split()) for row in rows] == [
        "1 20 20 25 25 0 125 line 1 -> get_weather({})",
        "2 30 5 35 30 5 125 line 2 -> a",
        "3 40 5 45 30 15 125 line 3 -> a",
    ]
    summarize(report, Console(file=output))
    assert (
        "conversation 2 over HTTP: its tool was called 1 times, and 2 of 2 further turns went on in its session; of 90 "
        "tokens that were sent 30 were new to it and prefilled\n"
    ) in output.getvalue()
    # Of the server's own seconds those over gRPC alone count: 0.2 s for 96 tokens.
    assert "2.08 ms an appended token, 25.00 ms a generated one" in output.getvalue()


def test_without_live_sessions_the_calls_are_counted() -> None:
    report, output = held(), io.StringIO()
    for number, turn in enumerate(report.turns):
        if turn.completion:
            report.turns[number] = replace(turn, completion=replace(turn.completion, session_id="", session_state=""))
    assert report.wrong_figures() == []
    summarize(report, Console(file=output))
    assert "conversation 2 over HTTP: its tool was called 1 times\n" in output.getvalue()


def test_json_has_what_was_told_over_http(tmp_path: Path) -> None:
    held().write_json(tmp_path / "demo.json")
    written = json.loads((tmp_path / "demo.json").read_text())
    assert written["conversations"][1]["tools"] == ["get_weather"]
    turn = written["turns"][-1]
    assert (turn["prefill_seconds"], turn["decode_seconds"], turn["user"]) == (None, None, "line 3")
    assert turn["over_http"] == {
        "first_token_seconds": 0.125,
        "prompt_tokens": 40,
        "completion_tokens": 5,
        "history": 45,
        "retained": 30,
        "evicted": 15,
        "session_state": "continued",
        "appended": 5,
        "reused": 35,
    }
