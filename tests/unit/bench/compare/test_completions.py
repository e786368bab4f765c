"""Completions over HTTP, against a real socket; and what is understood of the events of an answer."""

import asyncio
import json
import socket
import ssl
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kakeya_bench.compare import completions
from kakeya_bench.compare.completions import Answer, Completions, RivalFailed, saying
from kakeya_bench.compare.rival import Rival
from tests.certificates import Authority
from tests.unit.bench.compare.scripted_rival import (
    A_TOKEN,
    DONE,
    Answering,
    Exchange,
    ScriptedRival,
    event,
    refuses,
    scripted_rival,
)
from tests.unit.bench.conversation.playing import OwnClock

USUAL = {
    "prompt": [1, 2],
    "max_tokens": 3,
    "temperature": 0,
    "stream": True,
    "stream_options": {"include_usage": True},
}


def ask(url: str, timeout_seconds: float = 60.0, **facts: Any) -> tuple[Answer, float]:
    rival = Rival(name="them", url=url).model_copy(update=facts)
    return asyncio.run(Completions(rival, timeout_seconds).ask([1, 2], 3))


def failure(url: str, **how: Any) -> str:
    with pytest.raises(RivalFailed) as failed:
        ask(url, **how)
    return str(failed.value)


def test_what_is_sent(rival: ScriptedRival, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # which is not measured
    answer, began = ask(rival.url)
    assert (answer.token_ids, answer.num_tokens) == ([3, 4, 5], 3)
    assert answer.first_at is not None
    assert began < answer.first_at <= answer.done_at
    fields = {"ignore_eos": None, "return_token_ids": None, "logprobs": 1, "temperature": 0.5}
    ask(rival.url, model="m", key="secret", fields=fields)
    assert rival.bodies == [
        {**USUAL, "ignore_eos": True, "return_token_ids": True},
        {**USUAL, "model": "m", "logprobs": 1, "temperature": 0.5},
    ]
    assert [path for path, _ in rival.requests] == ["/v1/completions"] * 2
    (_, first), (_, second) = rival.requests
    assert (first["accept"], first["accept-encoding"]) == ("text/event-stream", "identity")
    assert (first["host"], first["connection"]) == (f"127.0.0.1:{rival.port}", "close")
    assert ("authorization" in first, second["authorization"]) == (False, "Bearer secret")


def test_a_stream_in_the_smallest_pieces(rival: ScriptedRival) -> None:
    choice = {"text": "→", "token_ids": [5], "finish_reason": None}
    stream = ": hello\r\n\r\ndata: " + json.dumps({"choices": [choice]}, ensure_ascii=False) + "\r\n\r\n"
    pieces = [bytes([byte]) for byte in stream.encode() + DONE]
    rival.answering.append(lambda exchange: exchange.answer(*pieces))
    assert ask(rival.url)[0].token_ids == [5]


def test_times_are_those_of_the_events(
    rival: ScriptedRival, own_clock: OwnClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = threading.Event()
    take = Answer.take

    def hears(answer: Answer, data: str, moment: float) -> None:
        take(answer, data, moment)
        heard.set()

    def takes_its_time(exchange: Exchange) -> None:
        own_clock.go_on(2.0)
        exchange.begin()
        exchange.piece(A_TOKEN)
        assert heard.wait(60)
        own_clock.go_on(5.0)
        exchange.piece(DONE)
        exchange.piece(b"")

    monkeypatch.setattr(Answer, "take", hears)
    rival.answering.append(takes_its_time)
    answer, began = ask(rival.url)
    assert (began, answer.first_at, answer.done_at) == (0.0, 2.0, 7.0)


def breaks_off(exchange: Exchange) -> None:
    exchange.begin()
    exchange.piece(A_TOKEN)
    exchange.break_off()


def refuses_for_ever(exchange: Exchange) -> None:
    exchange.begin(500)
    while True:
        exchange.piece(b"z" * 10_000)


def is_no_stream(exchange: Exchange) -> None:
    exchange.send_response(200)
    exchange.send_header("content-type", "application/json")
    exchange.send_header("content-length", "2")
    exchange.end_headers()
    exchange.wfile.write(b"{}")


LATE = event({"error": {"message": "the worker is gone"}})


@pytest.mark.parametrize(
    ("answering", "said"),
    [
        (refuses(400, b'{"error": {"message": "unknown field: ignore_eos"}}'), "HTTP 400: unknown field: ignore_eos"),
        (refuses(500, b"oh\nno\xff"), "HTTP 500: oh no\N{REPLACEMENT CHARACTER}"),
        (refuses(302, b"elsewhere"), "HTTP 302: elsewhere"),
        (refuses_for_ever, f"HTTP 500: {'z' * 299}…"),
        (Exchange.break_off, "RemoteProtocolError: Server disconnected without sending a response."),
        (breaks_off, "RemoteProtocolError: peer closed connection without sending complete message body"),
        (lambda exchange: exchange.answer(A_TOKEN), "its stream ended before the answer did"),
        (lambda exchange: exchange.answer(A_TOKEN, LATE), "it broke off: the worker is gone"),
        (is_no_stream, "SSEError: Expected response header Content-Type to contain 'text/event-stream', got"),
    ],
)
def test_why_there_is_no_answer(rival: ScriptedRival, answering: Answering, said: str) -> None:
    rival.answering.append(answering)
    assert failure(rival.url).startswith(said)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_nobody_listens(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert failure(f"http://{host}:{port}").startswith("ConnectionRefusedError: ")


def test_a_connection_that_does_not_come_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completions, "CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as stack:
        address = listener.getsockname()
        for _ in range(3):  # nobody accepts, and there is no room for more
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        assert failure(f"http://127.0.0.1:{address[1]}") == "no connection within 0.2 s"


def test_an_answer_that_takes_too_long(rival: ScriptedRival) -> None:
    rival.usual = Exchange.stall
    assert failure(rival.url, timeout_seconds=0.2) == "no whole answer within 0.2 s"


def test_an_answer_that_nobody_waits_for_any_more_is_cut(rival: ScriptedRival) -> None:
    rival.usual = Exchange.stall

    async def leave() -> None:
        asking = asyncio.create_task(Completions(Rival(name="them", url=rival.url), 60.0).ask([1], 3))
        while not rival.bodies:
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        while not rival.has_seen_it_go:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(leave(), 60))
    assert rival.has_seen_it_go == [True]


def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    pair = authority.pair("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    with scripted_rival(tls=context) as rival:
        url = rival.url.replace("http://127.0.0.1", "https://localhost")
        assert "CERTIFICATE_VERIFY_FAILED" in failure(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
        answer, began = ask(url)
    assert answer.token_ids == [3, 4, 5]
    assert began > rival.accepted_at, "neither connecting nor shaking hands is measured"


def read(*events: Any) -> tuple[Any, ...]:
    """The events come at 1, 2, 3 ... seconds, then the end: ids, their number, when the first came, cached tokens."""
    answer = Answer()
    for moment, document in enumerate(events, 1):
        answer.take(json.dumps(document), float(moment))
    answer.take("", 0.5)  # an event without data is none
    answer.take(completions.DONE, float(len(events) + 1))
    assert answer.done_at == len(events) + 1
    return answer.token_ids, answer.num_tokens, answer.first_at, answer.num_cached_tokens


def token(text: str = "a", **further: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": None, **further}]}


def last(num_tokens: int, **further: Any) -> dict[str, Any]:
    return {"choices": [], "usage": {"completion_tokens": num_tokens, **further}}


def logprobs(*token_ids: int) -> dict[str, Any]:
    return {"content": [{"id": token_id, "token": "a", "logprob": -0.5} for token_id in token_ids]}


CACHED = {"prompt_tokens_details": {"cached_tokens": 11}}


@pytest.mark.parametrize(
    ("events", "understood"),
    [
        ([token(token_ids=[5]), token(token_ids=[6, 7]), last(3, **CACHED)], ([5, 6, 7], 3, 1.0, 11)),  # vLLM
        (
            [token(logprobs=logprobs(5)), token(logprobs=logprobs(6, 7)), last(3)],
            ([5, 6, 7], 3, 1.0, None),
        ),  # llama.cpp
        ([token("a", logprobs=None), token("b")], (None, None, 1.0, None)),  # OpenAI, texts alone
        ([token(token_ids=[5]), token(token_ids=[6])], ([5, 6], 2, 1.0, None)),  # no count
        ([token(token_ids=[5]), token(), last(2)], (None, 2, 1.0, None)),  # some ids are missing
        ([{"choices": []}, {"usage": None}, token(""), token("b")], (None, None, 3.0, None)),  # half a letter
        ([token("", finish_reason="stop"), last(0)], (None, 0, None, None)),  # an end is no token
        ([token("", token_ids=[5], finish_reason="length"), last(1)], ([5], 1, 1.0, None)),
        ([last(1, prompt_tokens_details=None)], (None, 1, None, None)),
    ],
)
def test_answers(events: list[Any], understood: tuple[Any, ...]) -> None:
    assert read(*events) == understood


@pytest.mark.parametrize(
    "data",
    [
        "{half",
        "[1]",
        "\N{REPLACEMENT CHARACTER}",
        '{"choices": [{"delta": {"content": "a"}}]}',
        '{"choices": 5}',
        '{"choices": [{"text": "a", "token_ids": ["five"]}]}',
        '{"choices": [{"text": "a", "logprobs": ["a"]}]}',
        '{"choices": [{"text": "a", "logprobs": {"content": [{"token": "a"}]}}]}',
        '{"usage": {"completion_tokens": "five"}}',
    ],
)
def test_events_of_something_else(data: str) -> None:
    with pytest.raises(RivalFailed, match=r"^an event is none of a completion: "):
        Answer().take(data, 1.0)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"error": {"message": "no such model", "type": "x"}}', "no such model"),
        ('{"error": "no such\\n  model"}', "no such model"),
        ('{"error": {"code": 5}}', '{"error": {"code": 5}}'),
        ("Internal \x1b[31m Error", "Internal \\x1b[31m Error"),
        ("x" * 1000, "x" * 299 + "…"),
        ("[]", "[]"),
    ],
)
def test_what_an_error_says(body: str, said: str) -> None:
    assert saying(body) == said
