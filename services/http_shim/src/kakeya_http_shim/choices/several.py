"""Several answers at once, their events as they come."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from kakeya import AsyncClient
from kakeya_http_shim.choices.ask import Ask
from kakeya_http_shim.choices.choice import ChoiceMaker, Event

_MAX_WAITING = 64
"""Events that wait for a slow reader, as many as the runtime buffers tokens on a hop."""

Item = tuple[int, Event] | Exception | None
"""None: an answer has ended."""


async def all_choices(
    maker: ChoiceMaker, asks: Sequence[Ask], client: AsyncClient
) -> AsyncGenerator[tuple[int, Event], None]:
    """The events of all answers, each with its answer's index. Raises what the first that fails raises.

    Each has a session of its own and waits for none of the others, so that requests cannot block each other by
    holding some sessions while they wait for more. Close it where it is left before its end.
    """
    if len(asks) == 1:
        async with aclosing(maker.choice(asks[0], client)) as events:
            async for event in events:
                yield 0, event
        return
    queue: asyncio.Queue[Item] = asyncio.Queue(_MAX_WAITING)
    tasks = [asyncio.create_task(_follow(maker, ask, client, index, queue)) for index, ask in enumerate(asks)]
    try:
        num_running = len(tasks)
        while num_running:
            match await queue.get():
                case Exception() as error:
                    raise error
                case None:
                    num_running -= 1
                case item:
                    yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _follow(maker: ChoiceMaker, ask: Ask, client: AsyncClient, index: int, queue: "asyncio.Queue[Item]") -> None:
    try:
        async with aclosing(maker.choice(ask, client)) as events:
            async for event in events:
                await queue.put((index, event))
    except Exception as error:  # the reader of the queue raises it
        await queue.put(error)
    else:
        await queue.put(None)
