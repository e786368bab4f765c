"""A client's conversation, with side steps: what becomes of histories between two turns."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.integration.open_http import MODEL
from tests.soak.histories_http.asking import Answer, Ask, Refusal
from tests.soak.histories_http.ground import OTHER_MODEL, TENANTS
from tests.soak.histories_http.histories import CHANGES, Message, is_long, kept, opening, user
from tests.soak.histories_http.judge import BINDS, NEW, OTHER_TENANT

Asks = Callable[[Ask], Awaitable[Answer | Refusal]]
NEXT = "next turn"
CUT, LEFT, TWICE = "stop text", "left in mid-stream", "two at once"
_TEMPERATURES = (0.0, 1.0, 1.0, 1.8)
_STOPS = ("e", " ", ".", "\n", "a", "Hello")
_MAX_TURNS = 6
_MAX_TOKENS = 16
_GOES_ON_CHANGED = 0.25
"""How often a conversation goes on from a changed history, which is then the one that is changed next."""


class Conversation:
    """Of one tenant with one model.

    Args:
        asks: sends a request and judges its answer.
    """

    def __init__(self, draw: random.Random, asks: Asks) -> None:
        self._draw, self._asks = draw, asks
        self._tenant, self._model = draw.choice(TENANTS), draw.choice((MODEL, MODEL, OTHER_MODEL))
        self._overflow = draw.choice(("evict", "evict", "evict", "refuse"))
        self._variables = draw.choice(({}, {}, {"chat_template_kwargs": {"mood": "calm"}}))
        self._messages = opening(draw, may_be_long=self._model == MODEL)
        self._session_id = ""

    async def hold(self) -> None:
        """A few turns, between which the histories that were sent are sent again, changed."""
        for _ in range(self._draw.randint(2, _MAX_TURNS)):
            given = self._next()
            answer = await self._asks(given)
            if isinstance(answer, Refusal):  # it has outgrown a session that forgets nothing
                return
            self._session_id = answer.session.get("id", "")
            for _ in range(self._draw.choice((0, 1, 1, 2, 3))):
                await self._step_aside(answer.content)
            self._messages = [*self._messages, kept(self._draw, answer.content), user(self._draw)]

    def _next(self) -> Ask:
        kind = self._draw.choice((NEXT, NEXT, NEXT, NEXT, CUT, LEFT, "several answers"))
        ask = self._ask(NEXT, self._messages)
        if kind == CUT:
            return replace(ask, kind=CUT, fields={**ask.fields, "stop": self._draw.choice(_STOPS)})
        if kind == LEFT:
            return replace(ask, kind=LEFT, streams=True, leaves_after=self._draw.randint(1, 6))
        if kind == NEXT:
            return ask
        return replace(ask, kind=kind, fields={**ask.fields, "n": 2})

    def _ask(self, kind: str, messages: list[Message], **changed: Any) -> Ask:
        fields = {
            "max_tokens": self._draw.randint(1, _MAX_TOKENS),
            "temperature": self._draw.choice(_TEMPERATURES),
            "seed": self._draw.getrandbits(31),
            "kakeya": {"on_overflow": self._overflow},
            **self._variables,
        }
        streams = self._draw.random() < 0.5
        return replace(Ask(kind, self._tenant, self._model, messages, fields, streams), **changed)

    async def _step_aside(self, content: str) -> None:
        """One changed request, or two at once; the conversation may go on from the changed history.

        Args:
            content: the answer that came last.
        """
        history = [*self._messages, kept(self._draw, content), user(self._draw)]
        asks = list(self._changed(history))
        answers = await asyncio.gather(*map(self._asks, asks))
        is_changed = asks and asks[0].kind in CHANGES and isinstance(answers[0], Answer)
        if is_changed and self._draw.random() < _GOES_ON_CHANGED:
            self._messages = list(asks[0].messages)

    def _changed(self, history: list[Message]) -> Iterator[Ask]:
        kind = self._draw.choice((*CHANGES, *CHANGES, *self._others))
        if kind in CHANGES:
            yield self._ask(kind, CHANGES[kind](self._draw, history))
        else:
            yield from self._others[kind](kind, history)

    @property
    def _others(self) -> dict[str, Callable[[str, list[Message]], Iterator[Ask]]]:
        return {
            "regenerated": self._regenerated,
            "from an earlier turn": self._from_earlier,
            OTHER_TENANT: self._of_another_tenant,
            "another model": self._of_another_model,
            "another overflow": self._of_another_overflow,
            "other variables": self._with_other_variables,
            TWICE: self._twice,
            "insists on a new one": self._insisting,
            "bound": self._bound,
        }

    def _regenerated(self, kind: str, history: list[Message]) -> Iterator[Ask]:
        yield self._ask(kind, self._messages)

    def _from_earlier(self, kind: str, history: list[Message]) -> Iterator[Ask]:
        places = [place for place, message in enumerate(history) if message["role"] == "user"]
        place = self._draw.choice(places)
        yield self._ask(kind, [*history[:place], user(self._draw)])

    def _of_another_tenant(self, kind: str, history: list[Message]) -> Iterator[Ask]:
        (other,) = (tenant for tenant in TENANTS if tenant != self._tenant)
        yield self._ask(kind, self._draw.choice((history, self._messages)), tenant=other)

    def _of_another_model(self, kind: str, history: list[Message]) -> Iterator[Ask]:
        if not is_long(history):
            other = OTHER_MODEL if self._model == MODEL else MODEL
            yield self._ask(kind, self._draw.choice((history, self._messages)), model=other)

    def _of_another_overflow(self, kind: str, history: list[Message]) -> Iterator[Ask]:
        ask = self._ask(kind, self._draw.choice((history, self._messages)))
        other = "refuse" if self._overflow == "evict" else "evict"
        yield replace(ask, fields={**ask.fields, "kakeya": {"on_overflow": other}})

    def _with_other_variables(self, kind: str, history: list[Message]) -> Iterator[Ask]:
        ask = self._ask(kind, self._draw.choice((history, self._messages)))
        yield replace(ask, fields={**ask.fields, "chat_template_kwargs": {"mood": self._draw.choice((1, "wild"))}})

    def _twice(self, kind: str, history: list[Message]) -> Iterator[Ask]:
        """The same, or with other ends; now and then one of them leaves."""
        for end in (history[-1], self._draw.choice((history[-1], user(self._draw)))):
            ask = self._ask(kind, [*history[:-1], end])
            leaves = self._draw.random() < 0.2
            yield replace(ask, streams=True, leaves_after=self._draw.randint(1, 4)) if leaves else ask

    def _insisting(self, kind: str, history: list[Message]) -> Iterator[Ask]:
        yield self._ask(kind, history, headers=NEW)

    def _bound(self, kind: str, history: list[Message]) -> Iterator[Ask]:
        if not self._session_id:
            return
        change = self._draw.choice((*CHANGES.values(), lambda draw, messages: messages))
        yield self._ask(kind, change(self._draw, history), headers={BINDS: self._session_id})
