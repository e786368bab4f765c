"""A client that stays: its answer must not depend on those that leave."""

import asyncio
import json
import time
from typing import Any
from urllib.request import Request, urlopen

from tests.leavers_http.moments import CHAT, NUM_TOKENS

_ANSWER_SECONDS = 60.0
_PAUSE_SECONDS = 0.2
_QUESTION = {
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who stays?"}],
    "max_tokens": NUM_TOKENS,
    "seed": 11,
    "n": 2,
    "logprobs": True,
}


class Witness:
    """Attributes:
    answers: what it got so far, without what differs by nature.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self.answers: list[dict[str, Any]] = []
        self.seconds: list[float] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Asks again and again. Raises OSError where it is refused."""
        while not stop.is_set():
            await asyncio.to_thread(self.ask)
            await asyncio.sleep(_PAUSE_SECONDS)

    def ask(self) -> None:
        headers = {"content-type": "application/json"}
        request = Request(f"http://{self._address}{CHAT}", json.dumps(_QUESTION).encode(), headers)
        began = time.monotonic()
        with urlopen(request, timeout=_ANSWER_SECONDS) as response:
            answer = json.load(response)
        self.seconds.append(time.monotonic() - began)
        self.answers.append({name: answer[name] for name in ("choices", "usage", "system_fingerprint")})

    @property
    def num_different(self) -> int:
        """Answers that differ from the first."""
        return sum(answer != self.answers[0] for answer in self.answers)
