"""Clients of two kinds that talk without a pause while services are stopped and killed."""

import asyncio
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
    """A session over gRPC. Each turn appends tokens and generates some."""

    session: kakeya.AsyncSession
    answers: list[Any] = field(default_factory=list)

    async def turn(self) -> None:
        begin = NUM_APPENDED * len(self.answers) % 1000
        await self.session.append(range(begin, begin + NUM_APPENDED))
        stream = self.session.generate(
            max_tokens=NUM_GENERATED, temperature=1.0, seed=len(self.answers), ignore_eos=True
        )
        async with stream as generation:
            self.answers.append([token async for token in generation])


@dataclass
class ChatTalk:
    """OpenAI's client, which sends the whole conversation each time; after the last question it begins anew."""

    client: AsyncOpenAI
    answers: list[Any] = field(default_factory=list)
    messages: list[ChatCompletionMessageParam] = field(default_factory=list)

    async def turn(self) -> None:
        number = len(self.answers) % len(SAID)
        if not number:
            self.messages = []
        self.messages.append({"role": "user", "content": SAID[number]})
        answer = await self.client.chat.completions.create(
            model=MODEL, messages=self.messages, temperature=0, max_tokens=64
        )
        text = answer.choices[0].message.content or ""
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
