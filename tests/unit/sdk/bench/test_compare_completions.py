"""Completions over HTTP, against a real socket."""

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kakeya.bench.compare import server_connection
from kakeya.bench.compare.answer import Answer, RivalFailed
from kakeya.bench.compare.completions import Completions
from kakeya.bench.compare.rival import Rival
from kakeya.bench.compare.server_connection import ServerConnection
from tests.certificates import Authority
from tests.unit.sdk.bench.scripted_rival import Answering, Exchange, ScriptedRival, refuses, scripted_rival


@pytest.fixture
def rival() -> Iterator[ScriptedRival]:
    with scripted_rival() as rival:
        yield rival


def ask(url: str, *prompts: list[int], timeout_seconds: float = 20.0, **facts: Any) -> list[tuple[Answer, float]]:
    """One prompt after the other, with one client."""

    async def asked() -> list[tuple[Answer, float]]:
        client = Completions(Rival("them", url, **facts), timeout_seconds)
        return [await client.ask(prompt, 3) for prompt in prompts or ([1, 2],)]

    return asyncio.run(asked())


def failure(url: str, **how: Any) -> str:
    with pytest.raises(RivalFailed) as failed:
        ask(url, **how)
    return str(failed.value)


def test_what_is_sent(rival: ScriptedRival) -> None:
    [(answer, began)] = ask(rival.url)
    assert (answer.token_ids, answer.num_tokens) == ([3, 4, 5], 3)
    assert answer.first_at is not None
    assert began < answer.first_at <= answer.done_at
    assert rival.paths == ["/v1/completions"]
    assert rival.bodies == [
        {
            "prompt": [1, 2],
            "max_tokens": 3,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
            "return_token_ids": True,
        }
    ]
    headers = {name.lower(): value for name, value in rival.headers[0].items()}
    assert headers["accept-encoding"] == "identity"
    assert headers["host"] == f"127.0.0.1:{rival.port}"
    assert headers["content-type"] == "application/json"
    assert "authorization" not in headers


def test_what_may_be_sent_beside_it(rival: ScriptedRival) -> None:
    fields = {"ignore_eos": None, "return_token_ids": None, "logprobs": 1, "temperature": 0.5}
    ask(rival.url, model="m", key="secret", fields=fields)
    assert rival.bodies == [
        {
            "model": "m",
            "prompt": [1, 2],
            "max_tokens": 3,
            "temperature": 0.5,
            "stream": True,
            "stream_options": {"include_usage": True},
            "logprobs": 1,
        }
    ]
    assert {name.lower(): value for name, value in rival.headers[0].items()}["authorization"] == "Bearer secret"


def test_each_request_has_a_connection_of_its_own(rival: ScriptedRival) -> None:
    ask(rival.url, [1], [2])
    assert len(set(rival.ports)) == 2
    assert {headers["connection"] for headers in rival.headers} == {"close"}


def test_no_proxy_is_measured(rival: ScriptedRival, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert len(ask(rival.url)) == 1


def test_a_stream_in_the_smallest_pieces(rival: ScriptedRival) -> None:
    def dribbles(exchange: Exchange) -> None:
        event = {"choices": [{"text": "→", "token_ids": [5], "finish_reason": None}]}
        whole = b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\r\n\r\ndata: [DONE]\r\n\r\n"
        exchange.begin()
        for place in range(len(whole)):
            exchange.piece(whole[place : place + 1])
        exchange.end()

    rival.answering.append(dribbles)
    [(answer, _)] = ask(rival.url)
    assert (answer.token_ids, answer.num_tokens) == ([5], 1)


def test_times_are_those_of_the_events(rival: ScriptedRival) -> None:
    moments = []

    def takes_its_time(exchange: Exchange) -> None:
        moments.append(time.perf_counter())
        time.sleep(0.1)
        exchange.begin()
        moments.append(time.perf_counter())
        exchange.event({"choices": [{"text": "a", "finish_reason": None}]})
        time.sleep(0.5)
        moments.append(time.perf_counter())
        exchange.piece(b"data: [DONE]\n\n")
        exchange.end()

    rival.answering.append(takes_its_time)
    [(answer, began)] = ask(rival.url)
    received, first_sent, end_sent = moments
    assert answer.first_at is not None
    assert began < received < first_sent < answer.first_at < end_sent < answer.done_at


@pytest.mark.parametrize(
    ("answering", "said"),
    [
        (refuses(400, b'{"error": {"message": "unknown field: ignore_eos"}}'), "HTTP 400: unknown field: ignore_eos"),
        (refuses(500, b"oh no"), "HTTP 500: oh no"),
        (refuses(302, b""), "HTTP 302: "),
        (refuses(503, b"y" * 200_000), f"HTTP 503: {'y' * 299}…"),
    ],
)
def test_a_refusal(rival: ScriptedRival, answering: Answering, said: str) -> None:
    rival.answering.append(answering)
    assert failure(rival.url) == said


def test_only_the_start_of_an_endless_error_is_read(rival: ScriptedRival) -> None:
    def refuses_for_ever(exchange: Exchange) -> None:
        exchange.send_response(500)
        exchange.send_header("transfer-encoding", "chunked")
        exchange.end_headers()
        while True:
            exchange.piece(b"z" * 10_000)

    rival.answering.append(refuses_for_ever)
    assert failure(rival.url) == f"HTTP 500: {'z' * 299}…"


def test_a_connection_that_breaks(rival: ScriptedRival) -> None:
    def breaks_off(exchange: Exchange) -> None:
        exchange.begin()
        exchange.event({"choices": [{"text": "a", "finish_reason": None}]})
        exchange.break_off()

    rival.answering += [breaks_off, Exchange.break_off]
    assert failure(rival.url).startswith("IncompleteRead: ")
    assert failure(rival.url) == "RemoteDisconnected: Remote end closed connection without response"


def test_a_stream_without_an_end(rival: ScriptedRival) -> None:
    def ends_early(exchange: Exchange) -> None:
        exchange.begin()
        exchange.event({"choices": [{"text": "a", "finish_reason": None}]})
        exchange.end()

    rival.answering.append(ends_early)
    assert failure(rival.url) == "its stream ended before the answer did"


def test_an_error_in_the_midst_of_a_stream(rival: ScriptedRival) -> None:
    def fails_late(exchange: Exchange) -> None:
        exchange.begin()
        exchange.event({"choices": [{"text": "a", "finish_reason": None}]})
        exchange.event({"error": {"message": "the worker is gone"}})
        exchange.end()

    rival.answering.append(fails_late)
    assert failure(rival.url) == "it broke off: the worker is gone"


def test_an_answer_that_takes_too_long(rival: ScriptedRival) -> None:
    def stalls(exchange: Exchange) -> None:
        exchange.begin()
        exchange.event({"choices": [{"text": "a", "finish_reason": None}]})
        exchange.connection.recv(1)  # until the client has gone

    rival.answering.append(stalls)
    assert failure(rival.url, timeout_seconds=0.2) == "no whole answer within 0.2 s"


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert failure(f"http://127.0.0.1:{port}").startswith("ConnectionRefusedError: ")


def test_a_host_that_nobody_knows() -> None:
    assert failure("http://nobody.invalid/v1").startswith("gaierror: ")


def test_a_connection_that_does_not_come_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_connection, "CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        with ExitStack() as stack:
            for _ in range(3):  # nobody accepts, and there is no room for more
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(address)
            assert failure(f"http://127.0.0.1:{address[1]}") == "TimeoutError: timed out"


def test_a_reason_without_words(rival: ScriptedRival, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise ConnectionResetError

    monkeypatch.setattr(ServerConnection, "_answer", fails)
    assert failure(rival.url) == "ConnectionResetError"


def test_a_server_without_chunks(rival: ScriptedRival) -> None:
    def says_it_at_once(exchange: Exchange) -> None:
        exchange.send_response(200)
        exchange.end_headers()
        exchange.wfile.write(b'data: {"choices": [{"text": "a", "token_ids": [5]}]}\n\ndata: [DONE]\n\n')

    rival.answering.append(says_it_at_once)
    [(answer, _)] = ask(rival.url)
    assert answer.token_ids == [5]


def test_connecting_is_not_measured(rival: ScriptedRival, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = ServerConnection._connect
    connected = []

    def connects_slowly(connection: ServerConnection) -> None:
        connect(connection)
        time.sleep(0.2)
        connected.append(time.perf_counter())

    monkeypatch.setattr(ServerConnection, "_connect", connects_slowly)
    [(_, began)] = ask(rival.url)
    assert began > connected[0]


def test_an_answer_that_nobody_waits_for_any_more_is_cut(rival: ScriptedRival) -> None:
    left = threading.Event()

    def stalls(exchange: Exchange) -> None:
        exchange.begin()
        exchange.piece(b": hello\n\n")
        assert exchange.connection.recv(1) == b"", "the client has gone"
        left.set()

    rival.answering.append(stalls)

    async def leave() -> None:
        asking = asyncio.create_task(Completions(Rival("them", rival.url), 20.0).ask([1], 3))
        while not rival.bodies:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(leave())  # which waits for the thread
    assert left.wait(5)


def test_what_is_cut_before_it_was_sent_is_not_sent(rival: ScriptedRival) -> None:
    connection = ServerConnection(rival.url)
    connection.cut()
    with pytest.raises(RivalFailed, match=r"^ConnectionAbortedError: cut before the request was sent$"):
        connection.post({}, b"")
    assert rival.bodies == []


def test_cutting_what_is_over_does_nothing(rival: ScriptedRival) -> None:
    connection = ServerConnection(rival.url)
    answer, _ = connection.post({}, json.dumps({"prompt": [1], "max_tokens": 1}).encode())
    assert answer.token_ids == [2]
    connection.cut()


def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    pair = authority.pair("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    with scripted_rival(tls=context) as rival:
        url = rival.url.replace("http://127.0.0.1", "https://localhost")
        assert "CERTIFICATE_VERIFY_FAILED" in failure(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
        [(answer, _)] = ask(url)
    assert answer.token_ids == [3, 4, 5]
