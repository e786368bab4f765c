"""Clients of two kinds that talk without a pause while services are stopped and killed."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

import kakeya

NUM_APPENDED, NUM_GENERATED = 20, 60
SAID = ("Hello!", "My name is Laura.", "What is my name?", "What is 2 + 3?", "Goodbye!")
MODEL = "kakeya-nano"


class Talk(Protocol):
    """A conversation whose answers depend on nothing but its turns."""

    answers: list[Any]

    async def turn(self) -> None: ...


@dataclass
class SessionTalk:
    """A session over gRPC. Each turn appends tokens and generates some.

    Attributes:
        longest_pause: of a stream, in seconds from one token to the next.
    """

    session: kakeya.AsyncSession
    num_generated: int = NUM_GENERATED
    answers: list[Any] = field(default_factory=list)
    longest_pause: float = 0.0

    async def turn(self) -> None:
        begin = NUM_APPENDED * len(self.answers) % 1000
        await self.session.append(range(begin, begin + NUM_APPENDED))
        stream = self.session.generate(
            max_tokens=self.num_generated, temperature=1.0, seed=len(self.answers), ignore_eos=True
        )
        answer, last = [], time.monotonic()
        async with stream as generation:
            async for token in generation:
                answer.append(token)
                now = time.monotonic()
                self.longest_pause, last = max(self.longest_pause, now - last), now
        self.answers.append(answer)

    @property
    def num_acknowledged(self) -> int:
        """Tokens of the history that it was told of."""
        return len(self.answers) * (NUM_APPENDED + self.num_generated)


@dataclass
class ChatTalk:
    """OpenAI's client, which sends the whole conversation each time; after the last question it begins anew.

    Attributes:
        num_generated: of each answer, whatever it says; 0: it ends when it is complete.
        said: by the user. Who says the same goes on with the same sessions.
        states: what became of the session at each turn, as the shim says.
    """

    client: AsyncOpenAI
    num_generated: int = 0
    said: Sequence[str] = SAID
    answers: list[Any] = field(default_factory=list)
    messages: list[ChatCompletionMessageParam] = field(default_factory=list)
    states: list[str] = field(default_factory=list)

    async def turn(self) -> None:
        number = len(self.answers) % len(self.said)
        if not number:
            self.messages = []
        self.messages.append({"role": "user", "content": self.said[number]})
        raw = await self.client.chat.completions.with_raw_response.create(
            model=MODEL,
            messages=self.messages,
            temperature=0,
            max_tokens=self.num_generated or 64,
            extra_body={"ignore_eos": True} if self.num_generated else {},
        )
        text = raw.parse().choices[0].message.content or ""
        self.states.append(raw.headers["kakeya-session"].partition(";")[0])
        self.messages.append({"role": "assistant", "content": text})
        self.answers.append(text)


class Load:
    """Talks that are under way until `end`.

    Args:
        talks: each goes on by itself. What one of them raises, `end` raises.
    """

    def __init__(self, talks: Sequence[Talk]) -> None:
        self._talks = talks
        self._stop = asyncio.Event()
        self._tasks = [asyncio.create_task(self._go_on(each)) for each in talks]

    async def _go_on(self, talk: Talk) -> None:
        while not self._stop.is_set():
            await talk.turn()

    async def advance(self, num_turns: int = 1) -> None:
        """Until each talk has had so many more answers. Raises what one of them has ended with."""
        wanted = [len(each.answers) + num_turns for each in self._talks]
        while any(len(each.answers) < number for each, number in zip(self._talks, wanted, strict=True)):
            for task in self._tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.05)

    async def end(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def __aenter__(self) -> "Load":
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def held_against(calm: Talk, disturbed: Sequence[Talk]) -> None:
    """Each answer of these is that of an undisturbed talk, which has had no turn yet."""
    for _ in range(max(len(each.answers) for each in disturbed)):
        await calm.turn()
    for each in disturbed:
        assert each.answers == calm.answers[: len(each.answers)]


async def nothing_is_lost(talks: Sequence[SessionTalk]) -> None:
    """Each session has all that its client was told of; they are closed."""
    for each in talks:
        assert (await each.session.info()).history_length == each.num_acknowledged
        await each.session.close()
