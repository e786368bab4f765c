"""What the HTTP shim adds to an answer, beside the gRPC SDK on the same prompt.

Both ask one runtime for the same greedy answer, with a session that is opened for it and closed after it: the SDK by
one call, as the shim does for a request that streams. They alternate, and so does which comes first; each pair has
connections of its own, which stay open from answer to answer. The time to the first token counts from before the
session, or the request, and ends with the token, or the first event with a text; what the shim needs for the chat
template and the tokenizer is in it, while the SDK is given tokens. The worker has no model (worker_without_model.py):
tokens come as fast as the runtime can carry them, so each microsecond of the shim shows, which a model's pauses between
tokens would hide.

Exits with 1 when the shim adds more than 3 ms to the first token or 0.3 ms to each further one: the difference of the
medians, in the mean over pairs.
"""

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

from kakeya import AsyncClient
from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_bench.statistics.distribution import median
from kakeya_shared import installed_models
from kakeya_shared.settings.service import setting
from tests.benchmarks import bench, pairs
from tests.benchmarks.bench import BenchSettings, Found, Stage
from tests.benchmarks.calls import worker_without_model
from tests.benchmarks.calls.worker_without_model import CHAT_MODEL
from tests.integration.processes import Runtime, runtime

FIRST, FURTHER = "first_token", "further_token"
BOUND_MS = {FIRST: 3.0, FURTHER: 0.3}
SIDES = ("gRPC SDK", "HTTP")
NUM_TOKENS = 64
MESSAGES = [
    {"role": "system", "content": "You are a helpful assistant. Answer briefly."},
    {"role": "user", "content": "What does a session cost that lives on the server, and what does it keep in sight?"},
]
_NUM_WARM = 10
_CALL_SECONDS = 30.0


class HttpSettings(BenchSettings):
    pairs: int = setting(
        12, "pairs of connections, one after the other", reason="five minutes in all", metavar="N", ge=1
    )
    answers: int = setting(60, "answers of each side in a pair", reason="half a minute a pair", metavar="N", ge=1)


Taken = dict[str, float]
"""Seconds, of an answer's further tokens in the mean."""


def _taken(began: float, moments: Sequence[float]) -> Taken:
    return {FIRST: moments[0] - began, FURTHER: (moments[-1] - moments[0]) / (NUM_TOKENS - 1)}


async def by_sdk(client: AsyncClient, token_ids: list[int], eos_token_ids: Sequence[int]) -> tuple[list[int], Taken]:
    """Returns the answer."""
    began = time.perf_counter()
    turn = client.turn(token_ids, max_tokens=NUM_TOKENS, model=CHAT_MODEL, eos_token_ids=eos_token_ids, temperature=0.0)
    async with turn as generation:
        answer, moments = [], []
        while (token_id := await generation.next_token()) is not None:
            moments.append(time.perf_counter())
            answer.append(token_id)
    return answer, _taken(began, moments)


def by_http(connection: HTTPConnection) -> tuple[list[str], Taken]:
    """Returns the answer, as it came."""
    began = time.perf_counter()
    fields = {"model": CHAT_MODEL, "messages": MESSAGES, "max_tokens": NUM_TOKENS, "temperature": 0, "stream": True}
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
    return [text for _, text in pieces], _taken(began, [moment for moment, _ in pieces])


async def compare(made: Runtime, num_answers: int, on_answer: Callable[[str], None]) -> list[dict[str, list[float]]]:
    """One pair, with connections of its own: seconds of the SDK's answers, and of HTTP's."""
    tokenizer = ChatTokenizer(str(installed_models.directory(CHAT_MODEL)))
    token_ids = tokenizer.prompt(MESSAGES)
    taken: dict[str, list[Taken]] = {side: [] for side in SIDES}
    host, _, port = made.shims[0].address.rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=_CALL_SECONDS)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    async with AsyncClient(made.address) as client:
        for order in pairs.in_turn(SIDES, _NUM_WARM + num_answers):
            for side in order:
                if side == SIDES[0]:
                    answer, seconds = await by_sdk(client, token_ids, tokenizer.eos_token_ids)
                else:
                    pieces, seconds = by_http(connection)
                taken[side].append(seconds)
            assert "".join(pieces) == tokenizer.decode(answer), "both get the same answer"
            assert pieces[0] == tokenizer.decode(answer[:1]), "and their first tokens are the same"
            on_answer("answers")
    connection.close()
    return [{name: [each[name] for each in taken[side][_NUM_WARM:]] for name in BOUND_MS} for side in SIDES]


@contextmanager
def runtime_without_model(directory: Path) -> Iterator[Runtime]:
    """A router, a worker without a model, and a shim."""
    with (
        runtime(directory, directory, num_workers=0) as made,
        worker_without_model.joining([made], worker_without_model.CHAT),
    ):
        made.start_http(f"--tokenizer={CHAT_MODEL}={CHAT_MODEL}")
        yield made


def tokenizing_ms() -> float:
    """What the chat template and the tokenizer take of the time to HTTP's first token, at the median."""
    tokenizer = ChatTokenizer(str(installed_models.directory(CHAT_MODEL)))
    seconds = []
    for _ in range(100):
        began = time.perf_counter()
        tokenizer.prompt(MESSAGES)
        tokenizer.num_pinned_tokens(MESSAGES)
        seconds.append(time.perf_counter() - began)
    return median(seconds) * 1e3


@bench.command(HttpSettings)
def measure(settings: HttpSettings, stage: Stage) -> Found:
    step = stage.steps(settings.pairs * (_NUM_WARM + settings.answers))
    with runtime_without_model(stage.directory) as made:
        measured = [asyncio.run(compare(made, settings.answers, step)) for _ in range(settings.pairs)]
    found = pairs.added(measured, SIDES, BOUND_MS)
    document = {
        "pairs": settings.pairs,
        "answers_per_pair": settings.answers,
        "tokens": NUM_TOKENS,
        "tokenizing_ms": tokenizing_ms(),
        **found,
    }
    return document, pairs.verdicts(found)
