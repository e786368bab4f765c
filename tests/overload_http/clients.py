"""Clients in closed loop: each asks, reads its whole answer, and asks again; refused, it comes again."""

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from kakeya_shared.settings.addresses import HostPort
from tests.integration.open_http import ENDLESS
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
        mistakes: what a client should not see.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    refusal_seconds: list[float] = field(default_factory=list)
    num_attempts: list[int] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)

    def mistake(self, what: str) -> None:
        self.mistakes.append(what[:_MAX_SHOWN])


@dataclass(frozen=True)
class Client:
    """Attributes:
    streams: whether it asks for streams.
    is_patient: whether it comes back when it is told to, and not at once.
    """

    address: str
    number: int
    streams: bool
    is_patient: bool

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
                    for fault in self._faults(answer):
                        experience.mistake(fault)
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

    def _faults(self, answer: Answer) -> list[str]:
        """What is missing of an accepted answer."""
        ends = _ends_of_stream(answer) if self.streams else _ends(answer.json())
        return (
            [] if ends == ["length"] else [f"an accepted answer that ends with {ends}: {answer.body[-_MAX_SHOWN:]!r}"]
        )


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
