"""A rival that keeps nothing between requests: transformers on the CPU prefills each request's whole prompt.

    python -m tests.benchmarks.transformers_server MODEL --port N [--dtype float32|bfloat16] [--threads N]

It serves one request at a time, the others wait; what it answers, see `Rival`. A request is given up when its client
leaves, but for a forward pass that has begun.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.benchmarks.completion_protocol import (
    DONE,
    MEDIA_TYPE,
    CompletionEvents,
    CompletionRequest,
    RequestRefused,
    refusal,
)
from tests.benchmarks.greedy_decoder import DTYPES, GreedyDecoder
from tests.benchmarks.rival_process import HOST, Rival, running


class TransformersServer:
    """The routes. The model runs in one thread, so that the event loop answers /health meanwhile."""

    def __init__(self, decoder: GreedyDecoder) -> None:
        self._decoder = decoder
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")
        self._turn = asyncio.Lock()

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/v1/completions", self.complete, methods=["POST"]),
            ]
        )

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def complete(self, request: Request) -> Response:
        try:
            asked = CompletionRequest.read(await request.body())
            asked.check(self._decoder.vocab_size, self._decoder.num_positions)
        except RequestRefused as error:
            return JSONResponse(refusal(error), status_code=400)
        return StreamingResponse(self._events(asked), media_type=MEDIA_TYPE)

    async def _events(self, asked: CompletionRequest) -> AsyncIterator[bytes]:
        events = CompletionEvents(asked)
        async with self._turn:
            tokens = self._decoder.tokens(asked.prompt, asked.max_tokens)
            async for token_id in self._in_thread(tokens):
                yield events.token(token_id)
        yield events.end(asked.max_tokens) + DONE

    async def _in_thread(self, tokens: Iterator[int]) -> AsyncIterator[int]:
        loop = asyncio.get_running_loop()
        while (token_id := await loop.run_in_executor(self._thread, next, tokens, None)) is not None:
            yield token_id


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
    with running(
        lambda port: [sys.executable, "-m", "tests.benchmarks.transformers_server", model, "--port", str(port), *flags]
    ) as rival:
        yield rival


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="the checkpoint's directory")
    parser.add_argument("--port", type=int, required=True, help=f"on {HOST}")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of weights and KV (default: float32)")
    parser.add_argument("--threads", type=int, default=2, help="of the model (default: 2)")
    arguments = parser.parse_args()
    decoder = GreedyDecoder(arguments.model, arguments.dtype, arguments.threads)
    uvicorn.run(TransformersServer(decoder).app(), host=HOST, port=arguments.port, log_level="warning")


if __name__ == "__main__":
    main()
