"""When and how a client leaves."""

import json
import random
from dataclasses import dataclass
from typing import Any

from tests.integration.open_http import ENDLESS

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
IN_HEAD, IN_BODY, AT_ANY_TIME, IN_EVENT, AFTER_EVENT, IN_STREAM, AT_END = (
    "in the head",
    "in the body",
    "at any time",
    "in the first event",
    "after the first event",
    "in mid-stream",
    "at the end",
)
OF_STREAMS = (IN_HEAD, IN_BODY, AT_ANY_TIME, IN_EVENT, AFTER_EVENT, IN_STREAM, AT_END)
OF_PLAIN = (IN_HEAD, IN_BODY, AT_ANY_TIME, AT_END)
NUM_TOKENS = 24
_EVENT_BYTES = 40  # less than the shortest event


@dataclass(frozen=True)
class Leave:
    """What one client does.

    Attributes:
        moment: one of those above.
        resets: whether its connection ends by a reset (RST) instead of being closed (FIN).
        share: of what the moment leaves open: bytes sent, bytes or events read, time waited; 0 to 1.
    """

    path: str
    fields: dict[str, Any]
    moment: str
    resets: bool
    share: float

    @property
    def streams(self) -> bool:
        return bool(self.fields["stream"])

    def request(self) -> tuple[bytes, bytes]:
        """Head and body."""
        body = json.dumps(self.fields).encode()
        names = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        head = f"POST {self.path} HTTP/1.1\r\n{names}\r\n\r\n"
        return head.encode(), body

    def sent(self) -> bytes:
        """What it sends of its request."""
        head, body = self.request()
        if self.moment == IN_HEAD:
            return head[: int(self.share * len(head))]
        if self.moment == IN_BODY:
            return head + body[: int(self.share * len(body))]
        return head + body

    @property
    def num_events(self) -> int:
        """That it reads at least before it leaves."""
        if self.moment == IN_STREAM:
            return 2 + int(self.share * NUM_TOKENS / 2)
        return int(self.moment == AFTER_EVENT)

    @property
    def num_bytes(self) -> int:
        """That it reads of the next event before it leaves."""
        return 1 + int(self.share * _EVENT_BYTES) if self.moment == IN_EVENT else 0


def draw(chance: random.Random, number: int) -> Leave:
    """Every second one asks for a stream."""
    streams = number % 2 == 0
    path = chance.choice((CHAT, COMPLETIONS))
    question: dict[str, Any] = {"messages": [{"role": "user", "content": f"Tell me of {number}."}]}
    if path == COMPLETIONS:
        question = {"prompt": f"Once there were {number}"}
    n, seed = chance.randint(1, 2), chance.randrange(1 << 32)
    fields = {**question, "stream": streams, "n": n, "seed": seed, "max_tokens": NUM_TOKENS, "logit_bias": ENDLESS}
    moment = chance.choice(OF_STREAMS if streams else OF_PLAIN)
    return Leave(path, fields, moment, resets=chance.random() < 0.5, share=chance.random())
