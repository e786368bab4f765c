"""OpenAI's client against a real socket: what it sends, what is understood of an answer, why there is none."""

import asyncio
import socket
from typing import Any

import pytest

from kakeya_bench.compare.chats import ChatAnswer, Chats, SessionSaid
from kakeya_bench.compare.completions import RivalFailed
from kakeya_bench.compare.rival import Rival
from kakeya_bench.compare.wording import said
from tests.unit.bench.compare.scripted_rival import (
    DONE,
    Answering,
    Exchange,
    ScriptedRival,
    delta,
    event,
    refuses,
    says_chat,
)
from tests.unit.bench.conversation.playing import OwnClock

MESSAGES = [said("Hello there")]


def rival_at(url: str, **facts: Any) -> Rival:
    return Rival(name="them", url=url, api="chat", model="m", tokenizer="t").model_copy(update=facts)


def ask(url: str, times: int = 1, timeout_seconds: float = 60.0, **facts: Any) -> list[ChatAnswer]:
    async def asked() -> list[ChatAnswer]:
        async with Chats(rival_at(url, **facts), timeout_seconds) as chats:
            return [await chats.ask(MESSAGES, 3) for _ in range(times)]

    return asyncio.run(asked())


def failure(url: str, **how: Any) -> str:
    with pytest.raises(RivalFailed) as failed:
        ask(url, **how)
    return str(failed.value)


def test_what_is_sent(chatting: ScriptedRival, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # which is not measured
    [answer] = ask(chatting.url, key="secret", fields={"ignore_eos": None, "logit_bias": {"5": -100}})
    usual = {"model": "m", "messages": MESSAGES, "max_tokens": 3, "temperature": 0, "stream": True}
    assert chatting.bodies == [{**usual, "stream_options": {"include_usage": True}, "logit_bias": {"5": -100}}]
    [(path, headers)] = chatting.requests
    assert (path, headers["authorization"]) == ("/v1/chat/completions", "Bearer secret")
    assert headers["user-agent"].startswith("AsyncOpenAI/Python ")
    assert answer.text == "<1> <1> <1> "
    assert answer.first_at is not None
    assert 0.0 < answer.asked_at <= answer.sent_at <= answer.first_at <= answer.done_at
    assert (answer.num_prompt_tokens, answer.num_tokens, answer.num_cached_tokens) == (7, 3, 0)
    assert answer.session == SessionSaid("new", "first-turn", 7, 0)


def test_connections_are_kept(chatting: ScriptedRival) -> None:
    sent = []
    chatting.on_request = lambda: sent.append(chatting.accepted_at)
    ask(chatting.url, times=3)
    assert len(sent) == 3
    assert len({*sent}) == 1


def test_times_are_those_of_the_events(chatting: ScriptedRival, own_clock: OwnClock) -> None:
    def takes_its_time(exchange: Exchange) -> None:
        own_clock.go_on(2.0)
        says_chat(exchange)

    chatting.answering.append(takes_its_time)
    [answer] = ask(chatting.url)
    assert (answer.asked_at, answer.sent_at, answer.first_at, answer.done_at) == (0.0, 0.0, 2.0, 2.0)


def test_a_server_that_says_no_more_than_it_has_to(rival: ScriptedRival) -> None:
    rival.answering.append(lambda exchange: exchange.answer(delta("a"), delta("b", "length"), DONE))
    [answer] = ask(rival.url)
    assert (answer.text, answer.session, answer.num_tokens, answer.num_cached_tokens) == ("ab", None, None, None)
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    rival.answering.append(
        lambda exchange: exchange.answer(delta("a", "stop"), event({"choices": [], "usage": usage}), DONE)
    )
    [answer] = ask(rival.url)
    assert (answer.num_prompt_tokens, answer.num_tokens, answer.num_cached_tokens) == (1, 2, None)


def breaks_off(exchange: Exchange) -> None:
    exchange.begin()
    exchange.piece(delta("a"))
    exchange.break_off()


LATE = event({"error": {"message": "the worker is gone"}})
NO_JSON = b"data: {half\n\n"


@pytest.mark.parametrize(
    ("answering", "says"),
    [
        (refuses(400, b'{"error": {"message": "unknown field: x"}}'), "HTTP 400: unknown field: x"),
        (refuses(500, b"oh\nno\xff"), "HTTP 500: oh no\N{REPLACEMENT CHARACTER}"),
        (Exchange.break_off, "RemoteProtocolError: Server disconnected without sending a response."),
        (breaks_off, "RemoteProtocolError: peer closed connection without sending complete message body"),
        (lambda exchange: exchange.answer(delta("a"), DONE), "its stream ended before the answer did"),
        (lambda exchange: exchange.answer(delta("a"), LATE), "it broke off: the worker is gone"),
        (lambda exchange: exchange.answer(delta("a"), NO_JSON), "an event is none of a chat: "),
        (
            lambda exchange: exchange.answer(delta("a"), kakeya_session="continued"),
            "what it says of its session is not understood: continued",
        ),
    ],
)
def test_why_there_is_no_answer(rival: ScriptedRival, answering: Answering, says: str) -> None:
    rival.answering.append(answering)
    assert failure(rival.url).startswith(says)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert failure(f"http://127.0.0.1:{port}").startswith("ConnectionRefusedError: ")


def test_an_answer_that_takes_too_long(rival: ScriptedRival) -> None:
    rival.usual = Exchange.stall
    assert failure(rival.url, timeout_seconds=0.5) == "no whole answer within 0.5 s"


@pytest.mark.parametrize(
    ("header", "said_of_it"),
    [
        (None, None),
        ("new; appended=7; reused=0; why=off", SessionSaid("new", "off", 7, 0)),
        ("forked; id=a.b; appended=0; reused=9; why=regenerated", SessionSaid("forked", "regenerated", 0, 9)),
    ],
)
def test_what_is_said_of_a_session(header: str | None, said_of_it: SessionSaid | None) -> None:
    assert SessionSaid.of(header) == said_of_it
