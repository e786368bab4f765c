"""A rival that keeps nothing between requests: transformers on the CPU prefills each request's whole prompt.

    python -m kakeya_bench.rivals.transformers_server MODEL --port N [--dtype float32|bfloat16] [--threads N]

It serves one request at a time, the others wait; what it answers, see `Rival`. A request is given up when its client
leaves, but for a forward pass that has begun.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kakeya_bench.rivals.greedy_decoder import DTYPES, GreedyDecoder
from kakeya_bench.rivals.server import HOST, Rival, running


class RequestRefused(Exception):
    """The request is none that the rival can answer; the message says why."""

    def body(self) -> bytes:
        """Of status 400."""
        return json.dumps({"error": {"code": 400, "message": str(self), "type": "invalid_request_error"}}).encode()


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _StreamOptions(_Strict):
    include_usage: bool  # an answer ends with its usage in any case


class CompletionRequest(_Strict):
    """The body, and the events of its answer. What a rival cannot do, sampling say, is refused and not ignored."""

    model: str
    prompt: list[int] = Field(min_length=1)
    max_tokens: int = Field(ge=1)
    temperature: float = Field(ge=0.0, le=0.0)
    stream: Literal[True]
    stream_options: _StreamOptions | None = None
    ignore_eos: Literal[True]
    return_token_ids: bool = False

    @classmethod
    def read(cls, body: bytes, vocab_size: int, num_positions: int) -> "CompletionRequest":
        """Raises RequestRefused, where a token is unknown or the answer would not fit, too."""
        try:
            asked = cls.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise RequestRefused(f"{'.'.join(map(str, first['loc'])) or 'the body'}: {first['msg']}") from error
        unknown = [token_id for token_id in asked.prompt if not 0 <= token_id < vocab_size]
        if unknown:
            raise RequestRefused(f"prompt: {unknown[0]} is no token id; the vocabulary has {vocab_size}")
        num_tokens = len(asked.prompt) + asked.max_tokens
        if num_tokens > num_positions:
            raise RequestRefused(
                f"prompt and max_tokens are {num_tokens} tokens; the model has {num_positions} positions"
            )
        return asked

    def token(self, token_id: int) -> bytes:
        """The event of a token, which is sent as soon as it is generated. Ids are told as vLLM tells them."""
        ids = {"token_ids": [token_id]} if self.return_token_ids else {}
        return self._event({"text": f"<{token_id}>", "finish_reason": None, **ids})

    def end(self) -> bytes:
        """The end of the answer, with its usage."""
        usage = {
            "prompt_tokens": len(self.prompt),
            "completion_tokens": self.max_tokens,
            "total_tokens": len(self.prompt) + self.max_tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        return self._event({"text": "", "finish_reason": "length"}, usage=usage) + b"data: [DONE]\n\n"

    def _event(self, choice: dict[str, Any], **more: Any) -> bytes:
        choices = [{"index": 0, "logprobs": None, **choice}]
        event = {"object": "text_completion", "created": int(time.time()), "model": self.model, "choices": choices}
        return f"data: {json.dumps({**event, **more})}\n\n".encode()


class _Server(ThreadingHTTPServer):
    """A thread a connection, so that /health is answered meanwhile."""

    daemon_threads = True

    def __init__(self, port: int, decoder: GreedyDecoder) -> None:
        super().__init__((HOST, port), _Handler)
        self.decoder = decoder
        self.turn = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    disable_nagle_algorithm = True  # an event must not wait until the one before is acknowledged

    def do_GET(self) -> None:
        self._begin(HTTPStatus.OK if self.path == "/health" else HTTPStatus.NOT_FOUND, "application/json")

    def do_POST(self) -> None:
        decoder, body = self.server.decoder, self.rfile.read(int(self.headers["content-length"]))
        try:
            asked = CompletionRequest.read(body, decoder.vocab_size, decoder.num_positions)
        except RequestRefused as error:
            self._begin(HTTPStatus.BAD_REQUEST, "application/json")
            self.wfile.write(error.body())
            return
        with self.server.turn:
            self._begin(HTTPStatus.OK, "text/event-stream")
            for token_id in decoder.tokens(asked.prompt, asked.max_tokens):
                self.wfile.write(asked.token(token_id))
        self.wfile.write(asked.end())

    def _begin(self, status: HTTPStatus, media_type: str) -> None:
        self.send_response(status)
        self.send_header("content-type", media_type)
        self.end_headers()

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Nothing: the log is for what goes wrong."""


@contextmanager
def transformers_server(model: Path, *, dtype: str = "float32", num_threads: int = 2) -> Iterator[Rival]:
    """The server as a process of its own, ready.

    Args:
        model: the checkpoint's directory.
        dtype: one of DTYPES.

    Raises:
        RivalFailed: it did not start, or ended by itself.
    """
    flags = ["--dtype", dtype, "--threads", str(num_threads)]
    with running(lambda port: [sys.executable, "-m", __name__, model, "--port", str(port), *flags]) as rival:
        yield rival


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="the checkpoint's directory")
    parser.add_argument("--port", type=int, required=True, help=f"on {HOST}")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of weights and KV (default: float32)")
    parser.add_argument("--threads", type=int, default=2, help="of the model (default: 2)")
    given = parser.parse_args()
    _Server(given.port, GreedyDecoder(given.model, given.dtype, given.threads)).serve_forever()


if __name__ == "__main__":
    main()
