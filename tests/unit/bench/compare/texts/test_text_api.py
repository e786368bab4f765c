"""OpenAI's client against a real socket: connections, times, why there is no answer."""

import socket

import pytest

from kakeya_bench.compare.texts.chats import Chats
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
from tests.unit.bench.compare.texts.asking_texts import ask, failure
from tests.unit.bench.conversation.playing import OwnClock


def test_connections_are_kept(chatting: ScriptedRival) -> None:
    sent = []
    chatting.on_request = lambda: sent.append(chatting.accepted_at)
    ask(Chats, chatting.url, times=3)
    assert len(sent) == 3
    assert len({*sent}) == 1


def test_times_are_those_of_the_events(chatting: ScriptedRival, own_clock: OwnClock) -> None:
    def takes_its_time(exchange: Exchange) -> None:
        own_clock.go_on(2.0)
        says_chat(exchange)

    chatting.answering.append(takes_its_time)
    [answer] = ask(Chats, chatting.url)
    assert (answer.asked_at, answer.sent_at, answer.first_at, answer.done_at) == (0.0, 0.0, 2.0, 2.0)


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
        (lambda exchange: exchange.answer(delta("a"), NO_JSON), "an event is none of its API: "),
        (
            lambda exchange: exchange.answer(delta("a"), kakeya_session="continued"),
            "what it says of its session is not understood: continued",
        ),
    ],
)
def test_why_there_is_no_answer(rival: ScriptedRival, answering: Answering, says: str) -> None:
    rival.answering.append(answering)
    assert failure(Chats, rival.url).startswith(says)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert failure(Chats, f"http://127.0.0.1:{port}").startswith("ConnectionRefusedError: ")


def test_an_answer_that_takes_too_long(rival: ScriptedRival) -> None:
    rival.usual = Exchange.stall
    assert failure(Chats, rival.url, timeout_seconds=0.5) == "no whole answer within 0.5 s"
