"""A rival that keeps nothing between requests: transformers on the CPU prefills each request's whole prompt.

    python -m kakeya_bench.rivals.transformers_server MODEL --port N [--dtype float32|bfloat16] [--threads N]

It serves one request at a time, the others wait; what it answers, see `Rival`. A request is given up when its client
leaves, but for a forward pass that has begun.
"""

import argparse
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from kakeya_bench.rivals.completions import CompletionRequest, RequestRefused
from kakeya_bench.rivals.greedy_decoder import DTYPES, GreedyDecoder
from kakeya_bench.rivals.server import HOST, Rival, running


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
