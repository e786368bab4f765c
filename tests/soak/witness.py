"""A client that behaves, beside all those that do not: what it gets must not depend on them."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")
_MAX_LETTERS = 300


class Witness(ABC, Generic[Answer]):
    """Attributes:
    answers: what it got so far.
    """

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    async def run(self, stop: asyncio.Event, pause_seconds: float) -> None:
        """Asks until `stop` is set. Any error is one that a client which behaves must not see."""
        while not stop.is_set():
            await self.ask()
            await asyncio.sleep(pause_seconds)

    async def ask(self) -> None:
        self.answers.append(await self._answer(len(self.answers)))

    @abstractmethod
    async def _answer(self, number: int) -> Answer:
        """To its question of this number."""

    def differences(self, expected: Iterable[Answer]) -> list[str]:
        """Held against as many that were given when nobody was beside it, or before anybody was."""
        return [
            f"answer {number} of the witness is {given}"[:_MAX_LETTERS] + f", not {quiet}"[:_MAX_LETTERS]
            for number, (given, quiet) in enumerate(zip(self.answers, expected, strict=True))
            if given != quiet
        ]
