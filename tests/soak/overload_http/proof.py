"""As many clients as an HTTP shim has places, then four times as many, and a look at what is left."""

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kakeya_shared.settings.addresses import HostPort
from kakeya_shared.settings.service import setting
from tests.integration.open_http import ENDLESS, open_http
from tests.integration.processes import Runtime
from tests.soak.progress import Progress
from tests.soak.proof import Proof
from tests.soak.report import Report, Tally
from tests.soak.run import Run, until_told
from tests.soak.shim_watch import PlaceWatch
from tests.unit.http_shim.served import Answer, connected

NUM_TOKENS = 32
_PATH = "/v1/chat/completions"
_ANSWER_SECONDS = 60.0
_HASTE_SECONDS = 0.1
_REFUSALS = (429, 503)
_MAX_SHOWN = 300


@dataclass
class Experience:
    """What clients have seen.

    Attributes:
        seconds: of each answer that was accepted, from the request to its end.
        refusal_seconds: of each refusal.
        num_attempts: of the clients that came back when they were told to, for each of their answers.
    """

    tally: Tally
    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    refusal_seconds: list[float] = field(default_factory=list)
    num_attempts: list[int] = field(default_factory=list)

    def mistake(self, what: str) -> None:
        """What a client should not see."""
        self.tally.violate(what[:_MAX_SHOWN])


@dataclass(frozen=True)
class Client:
    """Every second one asks for streams.

    Attributes:
        is_patient: whether it comes back when it is told to, and not at once.
    """

    address: str
    number: int
    is_patient: bool

    @property
    def streams(self) -> bool:
        return self.number % 2 == 0

    async def run(self, experience: Experience, stop: asyncio.Event) -> None:
        """Until `stop` is set; a patient one that was refused goes on until it got in."""
        num_asked = num_attempts = 0
        async with connected(HostPort.parse(self.address), limit=1 << 20) as connection:
            while not stop.is_set() or (self.is_patient and num_attempts):
                began = time.monotonic()
                async with asyncio.timeout(_ANSWER_SECONDS):
                    await connection.send(self._request(num_asked))
                    answer = await connection.answer()
                seconds = time.monotonic() - began
                experience.statuses[answer.status] += 1
                num_attempts += 1
                if answer.status == 200:
                    num_asked += 1
                    experience.seconds.append(seconds)
                    if self.is_patient:
                        experience.num_attempts.append(num_attempts)
                    num_attempts = 0
                    ends = _ends_of_stream(answer) if self.streams else _ends(answer.json())
                    if ends != ["length"]:
                        end = answer.body[-_MAX_SHOWN:]
                        experience.mistake(f"an accepted answer that ends with {ends}: {end!r}")
                else:
                    experience.refusal_seconds.append(seconds)
                    await asyncio.sleep(self._pause_seconds(answer, experience))

    def _request(self, number: int) -> bytes:
        fields = {
            "messages": [{"role": "user", "content": f"Question {number} of client {self.number}"}],
            "max_tokens": NUM_TOKENS,
            "logit_bias": ENDLESS,
            "stream": self.streams,
        }
        body = json.dumps(fields).encode()
        names = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        return f"POST {_PATH} HTTP/1.1\r\n{names}\r\n\r\n".encode() + body

    def _pause_seconds(self, answer: Answer, experience: Experience) -> float:
        told = answer.headers.get("retry-after", "")
        if answer.status not in _REFUSALS:
            experience.mistake(f"status {answer.status}: {answer.body!r}")
        elif not told.isdigit() or int(told) < 1:
            experience.mistake(f"status {answer.status} with Retry-After {told!r}")
        elif self.is_patient:
            return int(told)
        return _HASTE_SECONDS


def _ends(said: dict[str, Any]) -> list[str]:
    """How its choices end; and that nothing of them is missing."""
    if said["usage"]["completion_tokens"] != NUM_TOKENS:
        return [f"{said['usage']['completion_tokens']} tokens"]
    return [choice["finish_reason"] for choice in said["choices"]]


def _ends_of_stream(answer: Answer) -> list[str]:
    *events, done, rest = answer.body.decode().split("\n\n")
    if (done, rest) != ("data: [DONE]", ""):
        return [done]
    said = [json.loads(event.removeprefix("data: ")) for event in events if not event.startswith(":")]
    if any("error" in chunk for chunk in said):
        return ["error"]
    return [choice["finish_reason"] for chunk in said for choice in chunk["choices"] if choice["finish_reason"]]


_NUM_PLACES = 4  # of the shim, and lanes of the worker
_QUEUE_LENGTH = 4
_MAX_WAIT_SECONDS = 2.0
# From the end of its wait to what a refused client reads; the machine may be busy with the others' answers.
_REFUSAL_BOUND_SECONDS = _MAX_WAIT_SECONDS + 0.5
_NUM_CROWD = 4 * _NUM_PLACES
_SHIM_FLAGS = (
    *(f"--max-in-flight={_NUM_PLACES}", f"--queue-length={_QUEUE_LENGTH}", "--session-ttl-seconds=5"),
    *(f"--queue-max-wait-s={_MAX_WAIT_SECONDS:g}", "--session-close-after-seconds=3"),
)
# The line and the places hold half of the clients; these few keep it full, and the others come when they are told to.
_NUM_HASTY = _NUM_CROWD // 4
_ALONE_SHARE = 0.25
_WARM_SECONDS = 1.0  # the first request waits for the tokenizer
_SETTLE_SECONDS = 10.0


class OverloadHttp(Proof):
    """Four times the clients that the HTTP shim has places for, in front of a real stack. At first there are as many
    clients as places: what their answers take with all lanes busy is the service time. Then four times as many. Exits
    with 1 when anybody got another status than 200, 429 or 503, a refusal did not say when to come back, the line grew
    beyond its bound, a wait beyond its own, an accepted answer was not whole, the 99th percentile of accepted requests
    was above the longest wait and the service time's, or anything was left at the end.
    """

    model_config = Proof.named("overload-http")

    seconds: float = setting(60.0, "of overload", unit="seconds", reason="hundreds of answers and refusals", gt=0)

    def prove(self, directory: Path, progress: Progress) -> Report:
        with open_http(directory, *_SHIM_FLAGS, lanes=_NUM_PLACES) as made:
            return asyncio.run(OverloadHttpRun(made, progress).run(self.seconds))


class OverloadHttpRun(Run):
    def __init__(self, made: Runtime, progress: Progress) -> None:
        super().__init__(made, progress)
        self._places = PlaceWatch(made.shims[0])

    async def run(self, seconds: float) -> Report:
        watching = asyncio.create_task(self._places.run())
        await self._go(_NUM_PLACES, _WARM_SECONDS)
        alone_seconds, began = _ALONE_SHARE * seconds, time.monotonic()
        self.begin(alone_seconds + seconds, "seconds", lambda: time.monotonic() - began)
        self.progress.what = "no more clients than places"
        alone = await self._go(_NUM_PLACES, alone_seconds)
        self.progress.what = "four times as many"
        overloaded = await self._go(_NUM_CROWD, seconds, num_hasty=_NUM_HASTY)
        assert not watching.done(), "nobody watched the line to the end"
        watching.cancel()
        await asyncio.to_thread(self.leave_nothing, _SETTLE_SECONDS)
        self.read_logs()
        self._check(alone, overloaded)
        return self._report(alone, overloaded)

    async def _go(self, num_clients: int, seconds: float, num_hasty: int = 0) -> Experience:
        experience, address = Experience(self.tally), self.made.shims[0].address
        clients = [Client(address, number, is_patient=number >= num_hasty) for number in range(num_clients)]
        async with until_told([partial(client.run, experience) for client in clients]):
            await asyncio.sleep(seconds)
        return experience

    def _check(self, alone: Experience, overloaded: Experience) -> None:
        for number, what, most in (
            (self._places.longest_line, "waited", _QUEUE_LENGTH),
            (self._places.most_in_flight, "were worked on", _NUM_PLACES),
        ):
            if number > most:
                self.tally.violate(f"{number} {what}; at most {most} may")
        # Else the rest means nothing.
        unmet = {
            "somebody was refused although there were places": set(alone.statuses) != {200},
            "nobody was refused, so nobody honoured Retry-After": not overloaded.refusal_seconds,
            "nobody who was refused got in later": max(overloaded.num_attempts, default=0) < 2,
            "the line was never full": self._places.longest_line < _QUEUE_LENGTH,
        }
        self.tally.violate(*(what for what, is_unmet in unmet.items() if is_unmet))

    def _report(self, alone: Experience, overloaded: Experience) -> Report:
        # The longest wait, and what an answer takes beside others.
        bound_seconds = _MAX_WAIT_SECONDS + _percentile(alone.seconds, 99)
        longest_refusal = max(overloaded.refusal_seconds, default=0.0)
        late = []
        if (slow := _percentile(overloaded.seconds, 99)) > bound_seconds:
            late.append(f"p99 of accepted requests is {slow:.2f} s (bound: {bound_seconds:.2f} s)")
        if longest_refusal > _REFUSAL_BOUND_SECONDS:
            late.append(f"a refusal took {longest_refusal:.2f} s (bound: {_REFUSAL_BOUND_SECONDS:.2f} s)")
        facts = {
            "places": _NUM_PLACES,
            "queue_length": _QUEUE_LENGTH,
            "queue_max_wait_seconds": _MAX_WAIT_SECONDS,
            "longest_line": self._places.longest_line,
            "most_in_flight": self._places.most_in_flight,
            "samples": self._places.num_samples,
            "alone": _numbers(alone),
            "overloaded": _numbers(overloaded),
            "bound_seconds": round(bound_seconds, 3),
            "longest_refusal_seconds": round(longest_refusal, 3),
            "longest_refusal_seconds_bound": _REFUSAL_BOUND_SECONDS,
            "most_attempts": max(overloaded.num_attempts, default=0),
        }
        return self.report(facts, late)


def _percentile(seconds: list[float], percent: float) -> float:
    return float(np.percentile(seconds, percent)) if seconds else float("nan")


def _numbers(experience: Experience) -> dict[str, Any]:
    return {
        "statuses": {str(status): count for status, count in sorted(experience.statuses.items())},
        "p50_seconds": round(_percentile(experience.seconds, 50), 3),
        "p99_seconds": round(_percentile(experience.seconds, 99), 3),
    }
