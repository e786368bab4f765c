"""What the drivers share: each holds the conversations that it is told of, one after the other, as its client does.

A driver runs where its client is installed, and needs nothing else. It says on its standard output which client it is,
then for each line of its input, a talk as JSON, what it was answered.
"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any


@dataclass(frozen=True)
class Talk:
    """A conversation to be held.

    Attributes:
        system: instructions; "" for none.
        questions: what is said, each once the one before is answered.
        streams: answers are asked for as streams.
        stop: texts at which an answer ends.
    """

    base_url: str
    model: str
    system: str
    questions: list[str]
    max_tokens: int
    streams: bool
    stop: list[str]

    @property
    def stop_or_none(self) -> list[str] | None:
        """For clients that send an empty list."""
        return self.stop or None


Hold = Callable[[Talk], AsyncGenerator[str, None]]
"""The answers of a talk as the client has them."""


def serve(client: str, hold: Hold) -> None:
    """Until the input ends.

    Args:
        client: the distribution that is driven.
    """
    _say(client=client, version=version(client))
    asyncio.run(_serve(hold))


async def _serve(hold: Hold) -> None:
    for line in sys.stdin:
        answers: list[str] = []
        error = ""
        try:
            async with aclosing(hold(Talk(**json.loads(line)))) as said:
                async for answer in said:
                    answers.append(answer)  # noqa: PERF401  # those before an error count, too
        except Exception as problem:  # whatever the client raises: the talk ends, and the test is told why
            error = f"{type(problem).__name__}: {problem}"
        _say(answers=answers, error=error)


def _say(**said: Any) -> None:
    print(json.dumps(said), flush=True)
