"""What the HTTP shim adds to an answer, beside the gRPC SDK on the same prompt.

    python -m tests.benchmarks.http_overhead [--pairs N] [--answers N] [--json FILE]

Both ask one runtime for the same greedy answer: the SDK opens a session, takes its turn and closes it, as the shim does
for a request that streams. They alternate, and so does which comes first; each pair has connections of its own, which
stay open from answer to answer. The time to the first token counts from before the session, or the request, and ends
with the token, or the first event with a text; what the shim needs for the chat template and the tokenizer is in it,
while the SDK is given tokens. The worker has no model (chat_worker_without_model.py): tokens come as fast as the
runtime can carry them, so each microsecond of the shim shows, which a model's pauses between tokens would hide.

Exits with 1 when the shim adds more than 5 ms to the first token or 0.3 ms to each further one: the difference of the
medians, in the mean over pairs.
"""

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from kakeya import AsyncClient
from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_shared import installed_models
from tests.benchmarks.chat_worker_without_model import MODEL
from tests.benchmarks.interval import interval_of_mean
from tests.integration.processes import Runtime
from tests.redis_server import redis_server

FIRST, FURTHER = "first token", "further token"
BOUND_MS = {FIRST: 5.0, FURTHER: 0.3}
SIDES = ("gRPC SDK", "HTTP")
NUM_TOKENS = 64
MESSAGES = [
    {"role": "system", "content": "You are a helpful assistant. Answer briefly."},
    {"role": "user", "content": "What does a session cost that lives on the server, and what does it keep in sight?"},
]
_NUM_WARM = 10
_CALL_SECONDS = 30.0


@dataclass
class Timings:
    """Of one side in one pair, in seconds; of an answer's further tokens the mean."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in BOUND_MS})

    def note(self, began: float, first: float, last: float, num_further: int) -> None:
        self.seconds[FIRST].append(first - began)
        self.seconds[FURTHER].append((last - first) / num_further)


Pair = tuple[Timings, Timings]
"""Of the SDK, and of HTTP."""


async def by_sdk(
    client: AsyncClient, token_ids: list[int], eos_token_ids: Sequence[int], timings: Timings
) -> list[int]:
    """Returns the answer."""
    began = time.perf_counter()
    session = await client.create_session(model=MODEL, eos_token_ids=eos_token_ids)
    async with session.turn(token_ids, max_tokens=NUM_TOKENS, temperature=0.0) as generation:
        answer, moments = [], []
        while (token_id := await generation.next_token()) is not None:
            moments.append(time.perf_counter())
            answer.append(token_id)
    await session.close()
    timings.note(began, moments[0], moments[-1], NUM_TOKENS - 1)
    return answer


def by_http(connection: HTTPConnection, timings: Timings) -> list[str]:
    """Returns the answer, as it came."""
    began = time.perf_counter()
    fields = {"model": MODEL, "messages": MESSAGES, "max_tokens": NUM_TOKENS, "temperature": 0, "stream": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(fields), {"content-type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    moments, events = [], []
    while line := response.readline():
        if line.startswith(b"data: "):
            moments.append(time.perf_counter())
            events.append(line)
    assert events.pop() == b"data: [DONE]\n"
    texts = [json.loads(event.removeprefix(b"data: "))["choices"][0]["delta"].get("content") for event in events]
    pieces = [(moment, text) for moment, text in zip(moments, texts, strict=False) if text]
    timings.note(began, pieces[0][0], pieces[-1][0], NUM_TOKENS - 1)
    return [text for _, text in pieces]


async def compare(made: Runtime, num_answers: int, on_answer: Callable[[], None]) -> Pair:
    """One pair, with connections of its own."""
    tokenizer = ChatTokenizer(str(installed_models.directory(MODEL)))
    token_ids = tokenizer.prompt(MESSAGES)
    pair = Timings(), Timings()
    host, _, port = made.shims[0].address.rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=_CALL_SECONDS)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    async with AsyncClient(made.address) as client:
        for number in range(_NUM_WARM + num_answers):
            sdk, http = pair if number >= _NUM_WARM else (Timings(), Timings())
            if number % 2:
                pieces = by_http(connection, http)
            answer = await by_sdk(client, token_ids, tokenizer.eos_token_ids, sdk)
            if not number % 2:
                pieces = by_http(connection, http)
            assert "".join(pieces) == tokenizer.decode(answer), "both get the same answer"
            assert pieces[0] == tokenizer.decode(answer[:1]), "and their first tokens are the same"
            on_answer()
    connection.close()
    return pair


@contextmanager
def runtime_without_model(directory: Path) -> Iterator[Runtime]:
    """A router, a worker without a model, and a shim."""
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server())
        made = Runtime(redis, directory, directory)
        stack.callback(made.stop)
        made.start_router()
        worker = subprocess.Popen([sys.executable, "-m", "tests.benchmarks.chat_worker_without_model", made.address])
        try:
            made.wait_for_workers(1)
            made.start_http(f"--tokenizer={MODEL}={MODEL}")
            yield made
        finally:
            worker.terminate()
            worker.wait(timeout=20)


def tokenizing_ms() -> float:
    """What the chat template and the tokenizer take of the time to HTTP's first token, at the median."""
    tokenizer = ChatTokenizer(str(installed_models.directory(MODEL)))
    seconds = []
    for _ in range(100):
        began = time.perf_counter()
        tokenizer.prompt(MESSAGES)
        tokenizer.num_pinned_tokens(MESSAGES)
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds) * 1e3)


def report(pairs: Sequence[Pair], console: Console) -> dict[str, Any]:
    """Prints a table; returns its numbers in milliseconds."""
    facts: dict[str, Any] = {
        "pairs": len(pairs),
        "answers_per_pair": len(pairs[0][0].seconds[FIRST]),
        "tokens": NUM_TOKENS,
        "tokenizing_ms": tokenizing_ms(),
    }
    for name, bound in BOUND_MS.items():
        milliseconds = np.array([[side.seconds[name] for side in pair] for pair in pairs]) * 1e3
        medians = np.median(milliseconds, axis=2)  # [pairs, sides]
        differences = medians[:, 1] - medians[:, 0]
        difference = float(differences.mean())
        low, high = interval_of_mean(differences)
        p50 = medians.mean(axis=0)
        facts[name.replace(" ", "_")] = {
            "p50_ms": dict(zip(SIDES, p50.tolist(), strict=True)),
            "difference_ms": difference,
            "interval_95_ms": [low, high],
            "difference_by_pair_ms": differences.tolist(),
            "bound_ms": bound,
            "kept": difference <= bound,
        }
        verdict = "kept" if difference <= bound else "BROKEN"
        console.print(
            f"{name:13} p50 {p50[0]:.3f} ms by the SDK, {p50[1]:.3f} ms by HTTP: {difference:+.3f} ms "
            f"(95 %: {low:+.3f} to {high:+.3f}; pairs {differences.min():+.3f} to {differences.max():+.3f}; "
            f"bound: {bound:g} ms, {verdict})"
        )
    console.print(f"of HTTP's first token {facts['tokenizing_ms']:.3f} ms are the chat template and the tokenizer")
    return facts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=12, help="of connections, one after the other (default: 12)")
    parser.add_argument("--answers", type=int, default=60, help="of each side in a pair (default: 60)")
    parser.add_argument("--json", type=Path, default=None, help="where to write the numbers")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        runtime_without_model(Path(directory)) as made,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        bar = progress.add_task("measuring", total=arguments.pairs * (_NUM_WARM + arguments.answers))
        pairs = [
            asyncio.run(compare(made, arguments.answers, lambda: progress.advance(bar))) for _ in range(arguments.pairs)
        ]
    facts = report(pairs, Console(width=250))
    if arguments.json:
        arguments.json.write_text(json.dumps(facts, indent=2) + "\n")
    return 0 if all(facts[name.replace(" ", "_")]["kept"] for name in BOUND_MS) else 1


if __name__ == "__main__":
    sys.exit(main())
