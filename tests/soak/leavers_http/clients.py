"""A client over a bare socket that leaves in the midst of things, and one that stays."""

import asyncio
import json
import random
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any
from urllib.request import Request, urlopen

from kakeya_shared.settings.addresses import HostPort
from tests.integration.open_http import ENDLESS
from tests.soak.witness import Witness
from tests.unit.http_shim.served import RawClient

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
IN_HEAD, IN_BODY, AT_ANY_TIME, AT_END = "in the head", "in the body", "at any time", "at the end"
IN_EVENT, AFTER_EVENT, IN_STREAM = "in the first event", "after the first event", "in mid-stream"
OF_PLAIN = (IN_HEAD, IN_BODY, AT_ANY_TIME, AT_END)
OF_STREAMS = (*OF_PLAIN, IN_EVENT, AFTER_EVENT, IN_STREAM)
NUM_TOKENS = 24
_EVENT_BYTES = 40  # less than the shortest event
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time
_ANSWER_SECONDS = 60.0
_QUESTION = {
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who stays?"}],
    "max_tokens": NUM_TOKENS,
    "seed": 11,
    "n": 2,
    "logprobs": True,
}


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
    def kind(self) -> str:
        return "stream" if self.fields["stream"] else "plain"

    def sent(self) -> bytes:
        """What it sends of its request."""
        body = json.dumps(self.fields).encode()
        names = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        head = f"POST {self.path} HTTP/1.1\r\n{names}\r\n\r\n".encode()
        if self.moment == IN_HEAD:
            return head[: int(self.share * len(head))]
        return head + (body[: int(self.share * len(body))] if self.moment == IN_BODY else body)

    @property
    def num_events(self) -> int:
        """That it reads at least before it leaves."""
        return 2 + int(self.share * NUM_TOKENS / 2) if self.moment == IN_STREAM else int(self.moment == AFTER_EVENT)

    @property
    def num_bytes(self) -> int:
        """That it reads of the next event before it leaves."""
        return 1 + int(self.share * _EVENT_BYTES) if self.moment == IN_EVENT else 0


def draw(chance: random.Random, number: int) -> Leave:
    """Every second one asks for a stream."""
    streams, path = number % 2 == 0, chance.choice((CHAT, COMPLETIONS))
    question: dict[str, Any] = {"messages": [{"role": "user", "content": f"Tell me of {number}."}]}
    if path == COMPLETIONS:
        question = {"prompt": f"Once there were {number}"}
    n, seed = chance.randint(1, 2), chance.randrange(1 << 32)
    fields = {**question, "stream": streams, "n": n, "seed": seed, "max_tokens": NUM_TOKENS, "logit_bias": ENDLESS}
    moment = chance.choice(OF_STREAMS if streams else OF_PLAIN)
    return Leave(path, fields, moment, resets=chance.random() < 0.5, share=chance.random())


async def leave_as_told(address: str, leave: Leave, whole_seconds: float) -> None:
    """Raises AssertionError, OSError, IncompleteReadError or TimeoutError where something came before it left that
    should not have.

    Args:
        whole_seconds: what a whole answer takes.
    """
    client = RawClient(*await asyncio.open_connection(*HostPort.parse(address)))
    try:
        await client.send(leave.sent())
        await _stay(client, leave, whole_seconds)
    finally:
        if leave.resets:
            connection: socket.socket = client.writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            client.writer.transport.abort()
        else:
            client.writer.close()


async def _stay(client: RawClient, leave: Leave, whole_seconds: float) -> None:
    if leave.moment == AT_ANY_TIME:
        await asyncio.sleep(leave.share * whole_seconds)
    if leave.moment in (IN_HEAD, IN_BODY, AT_ANY_TIME):
        return
    async with asyncio.timeout(_ANSWER_SECONDS):
        if leave.moment == AT_END:  # all but the connection's end
            answer = await client.answer()
            assert answer.status == 200, answer
            assert leave.kind == "plain" or answer.body.endswith(b"data: [DONE]\n\n"), answer
            return
        head = await client.head()
        assert head[0] == 200, head
        for _ in range(leave.num_events):
            event = await client.chunk()
            assert b"data: " in event, event
            assert b'"error"' not in event, event
        await client.reader.readexactly(leave.num_bytes)


class StayingWitness(Witness[dict[str, Any]]):
    """Asks the same again and again; of the answers it keeps what does not differ by nature.

    Attributes:
        seconds: that each of them took.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self.seconds: list[float] = []

    async def _answer(self, number: int) -> dict[str, Any]:
        """Raises OSError where it is refused."""
        return await asyncio.to_thread(self._get)

    def _get(self) -> dict[str, Any]:
        headers = {"content-type": "application/json"}
        request = Request(f"http://{self._address}{CHAT}", json.dumps(_QUESTION).encode(), headers)
        began = time.monotonic()
        with urlopen(request, timeout=_ANSWER_SECONDS) as response:
            answer = json.load(response)
        self.seconds.append(time.monotonic() - began)
        del (
            answer["usage"]["kakeya"]["session"],
            answer["usage"]["prompt_tokens_details"],
        )  # it is there, or not any more
        return {name: answer[name] for name in ("choices", "usage", "system_fingerprint")}
