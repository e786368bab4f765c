"""A server of completions, chats and responses for tests: real sockets, with faults on request.

Its model counts as that of the scripted runtime does: the next token is the last one plus one. In texts, each word is a
token.
"""

import json
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.unit.sdk.scripted_runtime import VOCAB_SIZE

Answering = Callable[["Exchange"], None]
A_TOKEN = b'data: {"choices": [{"text": "a", "finish_reason": null}]}\n\n'
DONE = b"data: [DONE]\n\n"


class Exchange(BaseHTTPRequestHandler):
    """One request, and what is answered to it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "ScriptedRival"

    def do_POST(self) -> None:
        self.body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        self.server.bodies.append(self.body)
        self.server.on_request()
        (self.server.answering.popleft() if self.server.answering else self.server.usual)(self)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""

    def begin(self, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def piece(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def break_off(self) -> None:
        """The connection is gone, in the midst of what was said."""
        self.close_connection = True

    def stall(self) -> None:
        """Says nothing any more until the client has gone."""
        self.server.has_seen_it_go.append(self.connection.recv(1) == b"")

    def answer(self, *pieces: bytes, status: int = 200, **headers: str) -> None:
        """A whole one."""
        self.begin(status, **headers)
        for piece in pieces:
            self.piece(piece)
        self.piece(b"")

    def tokens(self) -> list[int]:
        """What the model says."""
        last = self.body["prompt"][-1]
        return [(last + 1 + number) % VOCAB_SIZE for number in range(self.body["max_tokens"])]


def event(document: Any) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def says_ids(exchange: Exchange) -> None:
    """As vLLM does."""
    tokens = exchange.tokens()
    choices = [{"text": f"{token_id} ", "token_ids": [token_id], "finish_reason": None} for token_id in tokens]
    last = {"choices": [], "usage": {"completion_tokens": len(tokens)}}
    exchange.answer(*(event({"choices": [choice]}) for choice in choices), event(last), DONE)


def says_texts(exchange: Exchange) -> None:
    """Only what OpenAI's API has."""
    exchange.answer(*[A_TOKEN] * exchange.body["max_tokens"], DONE)


def delta(text: str | None = None, finish_reason: str | None = None) -> bytes:
    """An event of a chat."""
    choice = {"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": finish_reason}
    return event({"id": "c", "object": "chat.completion.chunk", "choices": [choice]})


NUM_AROUND = 3
"""Tokens that the chat template writes around a message; two more begin an answer."""


def num_tokens(messages: Sequence[Mapping[str, str]]) -> int:
    """Of a conversation that is to be answered."""
    return sum(len(message["content"].split()) + NUM_AROUND for message in messages) + 2


@dataclass(frozen=True)
class _Live:
    """What a live session says of a request, that has all that was said before."""

    header: str
    num_prompt_tokens: int
    num_cached_tokens: int
    words: list[str]

    @classmethod
    def of(cls, messages: Sequence[Mapping[str, str]], num_words: int, said: str, more: int) -> "_Live":
        total, new = num_tokens(messages), num_tokens(messages[-1:])
        if len(messages) > 1:
            new += 1  # the end of the answer before
        usual = ("continued", "next-turn") if len(messages) > 1 else ("new", "first-turn")
        state, why = said.split() if said else usual
        cached = total - new - more
        header = f"{state}; id=m.1; appended={new + more}; reused={cached}; why={why}"
        return cls(header, total, cached, [f"<{len(messages)}> "] * num_words)


def says_chat(exchange: Exchange, *, said: str = "", more: int = 0) -> None:
    """As a live session does.

    Args:
        said: of the session, in place of what is so.
        more: tokens that are appended beside the new ones.
    """
    length = exchange.body["max_tokens"]
    live = _Live.of(exchange.body["messages"], length, said, more)
    usage = {
        "prompt_tokens": live.num_prompt_tokens,
        "completion_tokens": length,
        "total_tokens": live.num_prompt_tokens + length,
        "prompt_tokens_details": {"cached_tokens": live.num_cached_tokens},
    }
    end = {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": usage}
    words = map(delta, live.words)
    exchange.answer(delta(""), *words, delta(None, "length"), event(end), DONE, kakeya_session=live.header)


def told(kind: str, **fields: Any) -> bytes:
    """An event of a response."""
    return f"event: {kind}\n".encode() + event({"type": kind, "sequence_number": 0, **fields})


def text_delta(text: str) -> bytes:
    """One that brings text."""
    place = {"output_index": 0, "content_index": 0, "item_id": "msg_1"}
    return told("response.output_text.delta", delta=text, logprobs=[], **place)


def says_response(exchange: Exchange, *, said: str = "", more: int = 0) -> None:
    """As a live session does, behind the response that is named.

    Args:
        said, more: as of `says_chat`.
    """
    stored, body = exchange.server.stored, exchange.body
    messages = [*stored[body.get("previous_response_id")], *body["input"]]
    live = _Live.of(messages, body["max_output_tokens"], said, more)
    response_id = f"resp_{len(stored)}"
    response = {"id": response_id, "object": "response", "output": []}
    stored[response_id] = [*messages, {"role": "assistant", "content": "".join(live.words)}]
    usage = {
        "input_tokens": live.num_prompt_tokens,
        "input_tokens_details": {"cached_tokens": live.num_cached_tokens},
        "output_tokens": len(live.words),
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": live.num_prompt_tokens + len(live.words),
    }
    begins = told("response.created", response={**response, "status": "in_progress"})
    ends = told("response.incomplete", response={**response, "status": "incomplete", "usage": usage})
    exchange.answer(begins, *map(text_delta, live.words), ends, DONE, kakeya_session=live.header)


def refuses(status: int, body: bytes) -> Answering:
    return lambda exchange: exchange.answer(body, status=status)


class ScriptedRival(ThreadingHTTPServer):
    """Serves until it is stopped.

    Attributes:
        bodies, requests: what came, in order: documents; paths and headers.
        answering: what becomes of the next requests.
        usual: what becomes of the others.
        stored: what was said up to the end of a response, by its id; nothing without one.
        on_request: called before each is answered.
        accepted_at: when the last connection was there, before anything was said over it, by time.perf_counter.
        has_seen_it_go: of each answer that stalled, whether its client has left.
    """

    daemon_threads = False  # they are waited for: none of them outlives its test

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.bodies: list[dict[str, Any]] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.answering: deque[Answering] = deque()
        self.usual: Answering = says_ids
        self.stored: dict[str | None, list[dict[str, str]]] = {None: []}
        self.on_request: Callable[[], None] = lambda: None
        self.accepted_at = 0.0
        self.has_seen_it_go: list[bool] = []
        self.port = self.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def get_request(self) -> Any:
        self.accepted_at = time.perf_counter()
        return super().get_request()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is what some tests are about."""

    @property
    def prompts(self) -> list[list[int]]:
        return [body["prompt"] for body in self.bodies]


@contextmanager
def scripted_rival(tls: ssl.SSLContext | None = None) -> Iterator[ScriptedRival]:
    with ScriptedRival(tls) as rival:
        serving = threading.Thread(target=rival.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield rival
        rival.shutdown()
        serving.join()
