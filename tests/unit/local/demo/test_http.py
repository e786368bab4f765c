"""The demo over HTTP: what is asked, what is read, what counts as wrong, what is shown."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kakeya.cli.flags.connection import Connection
from kakeya_local.demo import http_conversation
from kakeya_local.demo.http_conversation import NUM_PAST_TURNS, NUM_TURNS, hold_again, left_sessions
from kakeya_local.demo.http_exchange import Call, Completion, calls_tools, complete
from kakeya_local.demo.http_report import HttpReport, HttpTurn
from kakeya_local.demo.report import DemoReport, Opened
from kakeya_local.demo.scripts import SCRIPTS, UNKNOWN
from kakeya_local.demo.summary import verdict
from kakeya_local.demo.transcript import http_summary, print_http
from kakeya_local.demo.turn import Turn
from kakeya_local.errors import StackError
from kakeya_local.stack.planning.http_entrance import HttpEntrance
from kakeya_local.stack.planning.http_plan import HttpPlan
from tests.unit.local.registry import serving_registry
from tests.unit.local.scripted_http import ScriptedHttp, scripted_http

LANE = 100


@pytest.fixture
def server() -> Iterator[ScriptedHttp]:
    with scripted_http() as server:
        yield server


def stream(*events: Any, end: str = "data: [DONE]\n\n") -> tuple[int, bytes]:
    return 200, "".join([": keep-alive\n\n", *(f"data: {json.dumps(event)}\n\n" for event in events), end]).encode()


def piece(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta}], "usage": None}


def used(prompt: int, generated: int) -> dict[str, Any]:
    retained = min(prompt + generated, LANE)
    sight = {"history": prompt + generated, "retained": retained, "evicted": prompt + generated - retained}
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": generated, "kakeya": sight}}


def answer(text: str, prompt: int = 90, generated: int = 20) -> tuple[int, bytes]:
    return stream(piece(role="assistant"), piece(content=text[:2]), piece(content=text[2:]), used(prompt, generated))


def ask(server: ScriptedHttp) -> Completion:
    return complete(HttpEntrance(server.address), "nano", [{"role": "user", "content": "Hello!"}], 64)


def test_a_stream_is_read_to_its_end(server: ScriptedHttp) -> None:
    server.answers = [answer(" It is blue.\n")]
    said = ask(server)
    assert said == Completion("It is blue.", said.first_token_seconds, 90, 20, 110, 100, 10)
    session = {"state": "continued", "id": "nano.1", "appended": 8, "reused": 82, "why": "next-turn"}
    usage = used(90, 20)
    usage["usage"]["kakeya"]["session"] = session
    server.answers = [stream(piece(content="It"), usage)]
    told = ask(server)
    assert (told.session_id, told.session_state, told.appended, told.reused) == ("nano.1", "continued", 8, 82)
    server.requests.pop()
    assert 0 < said.first_token_seconds < 30
    ((request, body),) = server.requests
    assert request == "POST /v1/chat/completions"
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("nano", 64, 0)
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})
    assert "tools" not in body


def called(index: int, **function: str) -> dict[str, Any]:
    begins = {"id": f"call{index}", "type": "function"} if "name" in function else {}
    return piece(tool_calls=[{"index": index, **begins, "function": function}])


def test_calls_are_read_in_whatever_pieces_they_come(server: ScriptedHttp) -> None:
    pieces = [called(0, name="f", arguments=""), called(0, arguments='{"a"'), called(0, arguments=": 1}")]
    server.answers = [stream(piece(content="So:"), *pieces, called(1, name="g", arguments="{}"), used(5, 6))]
    tools = ({"type": "function", "function": {"name": "f"}},)
    said = complete(HttpEntrance(server.address), "nano", [], 64, tools)
    assert said.calls == (Call("call0", "f", '{"a": 1}'), Call("call1", "g", "{}"))
    assert [*map(str, said.calls)] == ['f({"a": 1})', "g({})"]
    assert server.requests[0][1]["tools"] == [*tools]
    assert said.message == {
        "role": "assistant",
        "content": "So:",
        "tool_calls": [
            {"id": "call0", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
            {"id": "call1", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }
    assert replace(said, text="").message["content"] is None
    assert replace(said, calls=()).message == {"role": "assistant", "content": "So:"}


@pytest.mark.parametrize(("capabilities", "calls"), [(["completion", "tools"], True), (["completion"], False)])
def test_whether_a_model_calls_tools(server: ScriptedHttp, capabilities: list[str], calls: bool) -> None:
    server.answers = [(200, json.dumps({"capabilities": capabilities}).encode())]
    assert calls_tools(HttpEntrance(server.address), "nano") == calls
    assert server.requests == [("POST /api/show", {"model": "nano"})]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ((429, b'{"error": {"message": "too many"}}'), "the HTTP shim answers 429: too many"),
        ((500, b"oops"), "the HTTP shim answers 500: Internal Server Error"),
        (stream(piece(content="It"), {"error": {"message": "no worker"}}), "the HTTP shim broke off: no worker"),
        (stream(piece(content="It"), used(5, 1), end=""), "the HTTP shim broke off: the stream has no end"),
        (stream(piece(content="It")), "the HTTP shim ended an answer without its usage"),
    ],
)
def test_what_is_no_answer_is_an_error(server: ScriptedHttp, given: tuple[int, bytes], problem: str) -> None:
    server.answers = [given]
    with pytest.raises(StackError, match=f"^{problem}$"):
        ask(server)


def test_a_shim_that_is_gone_is_an_error() -> None:
    with scripted_http() as server:
        pass
    with pytest.raises(StackError, match=r"^the HTTP shim broke off: "):
        ask(server)


def held(num_turns: int) -> list[Turn]:
    return [
        Turn(1, number, number * 10, 10, 4, 0.1, 0.1, 0, user=f"question {number}", answer=f"answer {number}")
        for number in range(1, num_turns + 1)
    ]


def http_plan(server: ScriptedHttp) -> HttpPlan:
    return HttpPlan(server.address, HttpEntrance(server.address), "nano", None)


def test_all_of_a_conversation_is_sent_each_turn(server: ScriptedHttp) -> None:
    server.answers = [answer("first"), answer("second"), answer("other")]
    turns = hold_again(http_plan(server), "Be kind.", held(NUM_PAST_TURNS + NUM_TURNS + 3))
    assert [turn.held.turn for turn in turns] == list(range(NUM_PAST_TURNS + 1, NUM_PAST_TURNS + NUM_TURNS + 1))
    first, second = (body["messages"] for _, body in server.requests[:2])
    assert first[0] == {"role": "system", "content": "Be kind."}
    assert len(first) == 1 + 2 * NUM_PAST_TURNS + 1
    assert first[1:3] == [
        {"role": "user", "content": "question 1"},
        {"role": "assistant", "content": "answer 1"},
    ]
    assert first[-1] == {"role": "user", "content": f"question {NUM_PAST_TURNS + 1}"}
    assert second[: len(first)] == first
    assert second[len(first) :] == [
        {"role": "assistant", "content": "first"},
        {"role": "user", "content": f"question {NUM_PAST_TURNS + 2}"},
    ]


def test_a_short_conversation_is_held_once_more_from_its_beginning(server: ScriptedHttp) -> None:
    server.answers = [answer("It")]
    assert [turn.held.turn for turn in hold_again(http_plan(server), "", held(3))] == [1, 2, 3]
    assert len(server.requests[0][1]["messages"]) == 2


def test_of_the_first_script_those_turns_show_what_is_forgotten_and_what_is_pinned() -> None:
    lines = SCRIPTS[0].lines[NUM_PAST_TURNS : NUM_PAST_TURNS + NUM_TURNS]
    assert [line.expects for line in lines if line.expects] == ['"job": "baker"', UNKNOWN, UNKNOWN, "falcon"]


def over_http(**changes: Any) -> HttpReport:
    """Two turns, of which the second is expected to say "blue"; in both the lane is full."""
    first, second = held(12)[-2:]
    second = replace(second, expected="blue", answer="It is blue.")
    said = Completion("answer 11", 0.125, 104, 6, 110, 100, 10)
    turns = [
        HttpTurn(first, said),
        HttpTurn(second, replace(said, text="It is blue.", prompt_tokens=114, history=120, evicted=20)),
    ]
    return HttpReport(LANE, [turns[0], replace(turns[1], completion=replace(turns[1].completion, **changes))])


def test_right_figures_pass() -> None:
    assert over_http().wrong_figures() == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"evicted": 19},
            "HTTP turn 12: usage says 114 + 6 tokens, history 120, retained 100 and evicted 19, in a lane",
        ),
        ({"retained": 101}, "retained 101 and evicted 20, in a lane of 100"),
        ({"history": 121, "evicted": 21}, "history 121"),
        (
            {"prompt_tokens": 104, "history": 110, "evicted": 10},
            "HTTP turn 12: 104 prompt tokens follow 104, and nothing was taken back",
        ),
    ],
)
def test_figures_that_cannot_be_are_wrong(changes: dict[str, int], problem: str) -> None:
    (said,) = over_http(**changes).wrong_figures()
    assert problem in said


def live(**changes: Any) -> HttpReport:
    """The same in one session, to which the second turn appends four tokens."""
    first, second = over_http().turns
    begun = replace(first.completion, session_id="nano.1", session_state="new", appended=104)
    told: dict[str, Any] = {"session_id": "nano.1", "session_state": "continued", "appended": 4, "reused": 110}
    gone_on = replace(second.completion, **(told | changes))
    return HttpReport(LANE, [replace(first, completion=begun), replace(second, completion=gone_on)])


def test_a_turn_that_appends_its_own_tokens_passes() -> None:
    assert live().wrong_figures() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"session_state": "forked"},
        {"session_id": "nano.2"},
        {"reused": 109},
        {"appended": 5},
        {"session_state": "new", "reused": 0, "appended": 114},
    ],
)
def test_a_turn_that_appends_more_is_wrong(changes: dict[str, Any]) -> None:
    (said,) = live(**changes).wrong_figures()
    assert said.startswith("HTTP turn 12: its session is ")
    assert said.endswith(" tokens, of 110 that were there")


def test_a_session_that_is_left_over_is_wrong() -> None:
    assert replace(over_http(), left_sessions=["nano.1"]).wrong_figures() == ["session nano.1 is left over"]


async def test_sessions_are_given_time_to_close(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving_registry() as (address, router):
        router.pages = [(["a"], "more"), (["b"], ""), (["b"], "")]
        assert await left_sessions(Connection(address), set()) == []
        assert router.pages == []
        router.pages = [(["a"], "")]
        assert await left_sessions(Connection(address), {"a"}) == [], "that of the conversation stays"
        monkeypatch.setattr(http_conversation, "_CLOSED_WITHIN_SECONDS", 0)
        router.pages = [(["a"], "more"), (["b"], "")]
        assert await left_sessions(Connection(address), {"c"}) == ["a", "b"]
        router.key = "secret"
        with pytest.raises(StackError, match=r"^the router does not list its sessions: not for you$"):
            await left_sessions(Connection(address), set())


def test_not_to_know_counts_where_as_much_was_said_as_over_grpc() -> None:
    (turn,) = over_http().turns[:1]
    forgetful = replace(turn, held=replace(turn.held, expected=UNKNOWN, history_length=108, generated_tokens=4))
    assert not forgetful.turn.still_in_sight
    assert replace(forgetful, held=replace(forgetful.held, history_length=109)).turn.still_in_sight
    assert replace(forgetful, held=replace(forgetful.held, still_in_sight=True)).turn.still_in_sight


def whole(http: HttpReport) -> DemoReport:
    report = DemoReport("tiny", sink=2, window=6, kv_bytes_per_token=1, http=http)
    report.sessions.append(Opened(1, "a talk", "Be brief.", sink=3, window=5, pinned_tokens=3))
    return report


def test_answers_over_http_are_counted_apart(capsys: pytest.CaptureFixture[str]) -> None:
    once = over_http(text="It is red.")
    assert verdict(whole(once), long_histories=False) == 0
    twice = replace(once, turns=[replace(once.turns[0], held=replace(once.turns[0].held, expected="?")), once.turns[1]])
    assert verdict(whole(twice), long_histories=False) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "kakeya demo: error: over HTTP, conversation 1 turn 12: 'question 12' is answered 'It is red.', "
        "which lacks 'blue'"
    )
    assert verdict(whole(over_http(evicted=0)), long_histories=False) == 1


def test_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    print_http(over_http(text="It is\nred."))
    title, header, *rows = capsys.readouterr().out.strip().splitlines()
    assert title.startswith(
        "conversation 1 from turn 11 on once more, over HTTP; the 10 turns before are brought along"
    )
    assert header.split()[:6] == ["turn", "prompt", "appended", "history", "retained", "evicted"]
    assert [" ".join(row.split()) for row in rows] == [
        "11 104 104 110 100 10 125 question 11 -> answer 11",
        "12 114 114 120 100 20 125 question 12 -> It is / red. [expected: blue]",
    ]
    assert http_summary(over_http()) == (
        "over HTTP: 1 of 1 as expected, 2 of 2 answers word for word those over gRPC; "
        "what exceeds 100 tokens is evicted; no session is left"
    )
    assert http_summary(live()).endswith(
        "; turn 12 sent the whole conversation and appended its own 4 tokens, the other 110 were there; "
        "what exceeds 100 tokens is evicted; no other session is left"
    )
    said = http_summary(over_http(text="It is red.", evicted=0))
    assert said.startswith(
        "over HTTP: 0 of 1 as expected, 1 of 2 answers word for word those over gRPC; HTTP turn 12: "
    )


def test_json_has_the_turns_over_http(tmp_path: Path) -> None:
    whole(over_http()).write_json(tmp_path / "demo.json")
    written = json.loads((tmp_path / "demo.json").read_text())["http"]
    assert (written["past_turns"], written["lane_tokens"], written["left_sessions"]) == (10, 100, 0)
    assert written["turns"][1] == {
        "turn": 12,
        "user": "question 12",
        "first_token_seconds": 0.125,
        "prompt_tokens": 114,
        "completion_tokens": 6,
        "history": 120,
        "retained": 100,
        "evicted": 20,
        "session_state": "",
        "appended": 0,
        "reused": 0,
        "answer": "It is blue.",
        "expected": "blue",
        "still_in_sight": False,
        "as_expected": True,
        "same_as_grpc": True,
    }
