"""What the HTTP shim adds to an answer, beside the gRPC SDK on the same prompt.

Both ask one runtime for the same greedy answers. First with a session that is opened for one answer and closed after
it: the SDK by one call, as the shim without live sessions does. Then for a conversation of two turns, of which the shim
with live sessions is sent all each time: it has to find no session, and then the one, and to tag each answer. A lane is
free for each new session. They alternate, and so does which comes first; each pair has
connections of its own, which stay open from answer to answer. The time to the first token counts from before the
session, or the request, and ends with the token, or the first event with a text; what the shim needs for the chat
template and the tokenizer is in it, while the SDK is given tokens. The worker has no model (worker_without_model.py):
tokens come as fast as the runtime can carry them, so each microsecond of the shim shows, which a model's pauses between
tokens would hide.

Exits with 1 when the shim adds more than 3 ms to the first token (5 ms to that of a new live session), or 0.3 ms to
each further one: the difference of the medians, in the mean over pairs.
"""

import asyncio
import itertools
import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

from kakeya import AsyncClient, AsyncGeneration
from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_bench.statistics.distribution import median
from kakeya_shared import installed_models
from kakeya_shared.settings.service import setting
from tests.benchmarks import bench, pairs
from tests.benchmarks.bench import BenchSettings, Found, Stage
from tests.benchmarks.calls import worker_without_model
from tests.benchmarks.calls.worker_without_model import CHAT_MODEL
from tests.integration.processes import Runtime, runtime

FIRST, FURTHER, NEW, CONTINUED = "first_token", "further_token", "new_session", "next_turn"
BOUND_MS = {FIRST: 3.0, FURTHER: 0.3, NEW: 5.0, CONTINUED: 3.0}
SIDES = ("gRPC SDK", "HTTP")
NUM_TOKENS = 64
MESSAGES = [
    {"role": "system", "content": "You are a helpful assistant. Answer briefly."},
    {"role": "user", "content": "What does a session cost that lives on the server, and what does it keep in sight?"},
]
NEXT = {"role": "user", "content": "And what does the next turn cost?"}
_NUM_WARM = 10
_NUMBERS = itertools.count()
_CALL_SECONDS = 30.0


class HttpSettings(BenchSettings):
    pairs: int = setting(
        12, "pairs of connections, one after the other", reason="seven minutes in all", metavar="N", ge=1
    )
    answers: int = setting(60, "answers of each side in a pair", reason="half a minute a pair", metavar="N", ge=1)


Taken = dict[str, float]
"""Seconds, of an answer's further tokens in the mean."""


def _taken(began: float, moments: Sequence[float]) -> Taken:
    return {FIRST: moments[0] - began, FURTHER: (moments[-1] - moments[0]) / (NUM_TOKENS - 1)}


def conversation(number: int) -> list[dict[str, str]]:
    """A new one: no session holds its beginning."""
    return [*MESSAGES[:-1], {"role": "user", "content": f"{number}. {MESSAGES[-1]['content']}"}]


def gone_on(messages: list[dict[str, str]], answer: str) -> list[dict[str, str]]:
    return [*messages, {"role": "assistant", "content": answer}, NEXT]


@dataclass(frozen=True)
class Sdk:
    """Asks over gRPC; each answer comes with the seconds that it took."""

    client: AsyncClient
    tokenizer: ChatTokenizer

    async def alone(self) -> tuple[str, Taken]:
        return await self._answer(lambda: self._turn(MESSAGES, ephemeral=True))

    async def talk(self, number: int) -> tuple[list[str], Taken]:
        """The two answers of a conversation."""
        messages, turns = conversation(number), []

        def turn() -> AsyncGeneration:
            turns.append(self._turn(messages, ephemeral=False))
            return turns[0]

        first, new = await self._answer(turn)
        session = turns[0].session
        assert session is not None
        later = gone_on(messages, first)
        behind = self.tokenizer.behind(later, len(messages), closed=False)
        assert behind is not None
        second, continued = await self._answer(lambda: session.turn(behind, max_tokens=NUM_TOKENS, temperature=0.0))
        await session.close()
        return [first, second], {NEW: new[FIRST], CONTINUED: continued[FIRST]}

    def _turn(self, messages: list[dict[str, str]], *, ephemeral: bool) -> AsyncGeneration:
        return self.client.turn(
            self.tokenizer.prompt(messages),
            max_tokens=NUM_TOKENS,
            model=CHAT_MODEL,
            eos_token_ids=self.tokenizer.eos_token_ids,
            temperature=0.0,
            ephemeral=ephemeral,
        )

    async def _answer(self, begin: Callable[[], AsyncGeneration]) -> tuple[str, Taken]:
        turn = begin()  # with the tokens, which are not counted
        began = time.perf_counter()
        async with turn as generation:
            answer, moments = [], []
            while (token_id := await generation.next_token()) is not None:
                moments.append(time.perf_counter())
                answer.append(token_id)
        return self.tokenizer.decode(answer), _taken(began, moments)


class Http:
    """Asks over one connection to a shim, likewise."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._connection = HTTPConnection(host, int(port), timeout=_CALL_SECONDS)
        self._connection.connect()
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._connection.close()

    def alone(self) -> tuple[str, Taken]:
        answer, taken, _ = self._answer(MESSAGES)
        return answer, taken

    async def talk(self, number: int, client: AsyncClient) -> tuple[list[str], Taken]:
        messages = conversation(number)
        first, new, said = self._answer(messages)
        assert said.startswith("new;"), said
        second, continued, said = self._answer(gone_on(messages, first))
        assert said.startswith("continued;"), said
        await client.session(said.split("id=")[1].split(";")[0]).close()
        return [first, second], {NEW: new[FIRST], CONTINUED: continued[FIRST]}

    def _answer(self, messages: list[dict[str, str]]) -> tuple[str, Taken, str]:
        """With what it says of its session."""
        began = time.perf_counter()
        fields = {"model": CHAT_MODEL, "messages": messages, "max_tokens": NUM_TOKENS, "temperature": 0, "stream": True}
        headers = {"content-type": "application/json"}
        self._connection.request("POST", "/v1/chat/completions", json.dumps(fields), headers)
        response = self._connection.getresponse()
        assert response.status == 200, response.read()
        moments, events = [], []
        while line := response.readline():
            if line.startswith(b"data: "):
                moments.append(time.perf_counter())
                events.append(line)
        assert events.pop() == b"data: [DONE]\n"
        texts = [json.loads(event.removeprefix(b"data: "))["choices"][0]["delta"].get("content") for event in events]
        pieces = [(moment, text) for moment, text in zip(moments, texts, strict=False) if text]
        assert len(pieces) == NUM_TOKENS, "each token has a text of its own"
        taken = _taken(began, [moment for moment, _ in pieces])
        return "".join(text for _, text in pieces), taken, response.headers.get("kakeya-session", "")


async def compare(made: Runtime, num_answers: int, on_answer: Callable[[str], None]) -> list[dict[str, list[float]]]:
    """One pair, with connections of its own: seconds of the SDK's answers, and of HTTP's."""
    tokenizer = ChatTokenizer(str(installed_models.directory(CHAT_MODEL)))
    taken: dict[str, list[Taken]] = {side: [] for side in SIDES}
    stateless, live = (Http(shim.address) for shim in made.shims)
    async with AsyncClient(made.address) as client:
        sdk = Sdk(client, tokenizer)
        for order in pairs.in_turn(SIDES, _NUM_WARM + num_answers):
            answers = {}
            for side in order:
                if side == SIDES[0]:
                    alone, seconds = await sdk.alone()
                    talk, of_talk = await sdk.talk(next(_NUMBERS))
                else:
                    alone, seconds = stateless.alone()
                    talk, of_talk = await live.talk(next(_NUMBERS), client)
                taken[side].append(seconds | of_talk)
                answers[side] = alone
                assert all(talk)
            assert len({*answers.values()}) == 1, "both get the same answer"
            on_answer("answers")
    stateless.close()
    live.close()
    return [{name: [each[name] for each in taken[side][_NUM_WARM:]] for name in BOUND_MS} for side in SIDES]


@contextmanager
def runtime_without_model(directory: Path) -> Iterator[Runtime]:
    """A router, a worker without a model, and two shims: without live sessions, and with them."""
    with (
        runtime(directory, directory, num_workers=0) as made,
        worker_without_model.joining([made], worker_without_model.CHAT),
    ):
        for live in ("off", "on"):
            made.start_http(f"--tokenizer={CHAT_MODEL}={CHAT_MODEL}", "--live-sessions", live)
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
