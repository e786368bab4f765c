"""A conversation of the demo, gone on with over HTTP as OpenAI clients do: all of it is sent each turn."""

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Self

import grpc

from kakeya.cli.flags.connection import Connection
from kakeya_local.demo.conversation import MAX_ANSWER_TOKENS
from kakeya_local.demo.http_exchange import Message, complete
from kakeya_local.demo.http_report import HttpTurn
from kakeya_local.demo.turn import Turn
from kakeya_local.errors import StackError
from kakeya_local.stack.planning.http_entrance import HttpEntrance
from kakeya_local.stack.planning.http_plan import HttpPlan
from kakeya_local.stack.readiness import list_sessions, open_channel

NUM_PAST_TURNS, NUM_TURNS = 26, 5
"""Turns of a conversation that go before those that are held once more, and these: of the first script's, two ask for
what is forgotten by then and one for what is pinned."""
_CLOSED_WITHIN_SECONDS = 5.0
_POLL_SECONDS = 0.1


@dataclass
class HttpConversation:
    """What has been said, and whom to ask.

    Args:
        model: as it is served.
        messages: the system prompt and the turns so far.
    """

    entrance: HttpEntrance
    model: str
    messages: list[Message] = field(default_factory=list)

    @classmethod
    def after(cls, entrance: HttpEntrance, model: str, system: str, past: Sequence[Turn]) -> Self:
        """One that begins with turns that were held otherwise."""
        messages = [{"role": "system", "content": system}]
        for turn in past:
            messages += _said(turn.user, turn.answer)
        return cls(entrance, model, messages)

    def take_turn(self, held: Turn) -> HttpTurn:
        """Says once more what was said in a turn over gRPC. Raises StackError."""
        asked = [*self.messages, {"role": "user", "content": held.user}]
        completion = complete(self.entrance, self.model, asked, MAX_ANSWER_TOKENS)
        self.messages += _said(held.user, completion.text)
        return HttpTurn(held, completion)


def _said(user: str, answer: str) -> list[Message]:
    return [{"role": "user", "content": user}, {"role": "assistant", "content": answer}]


def hold_again(http: HttpPlan, system: str, turns: Sequence[Turn]) -> list[HttpTurn]:
    """Holds some turns of a conversation once more; those before them are brought along. Raises StackError."""
    start = min(NUM_PAST_TURNS, max(0, len(turns) - NUM_TURNS))
    conversation = HttpConversation.after(http.entrance, http.model, system, turns[:start])
    return [conversation.take_turn(turn) for turn in turns[start : start + NUM_TURNS]]


async def left_sessions(connection: Connection, own: Collection[str]) -> list[str]:
    """The sessions that stay open although nobody uses any, their ids. Raises StackError.

    Args:
        own: those of the conversation, which may go on.
    """
    deadline = time.monotonic() + _CLOSED_WITHIN_SECONDS
    async with open_channel(connection) as channel:
        try:
            while left := [each for each in await list_sessions(channel, connection.metadata) if each not in own]:
                if time.monotonic() > deadline:
                    break
                await asyncio.sleep(_POLL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise StackError(f"the router does not list its sessions: {error.details()}") from error
    return left
