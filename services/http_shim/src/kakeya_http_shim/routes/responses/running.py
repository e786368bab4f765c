"""Responses that are being answered by this server, so that they can be cancelled, and read by others."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from kakeya_http_shim.live.lasting_answer import LastingAnswer
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.responses_api.responses_writer import cancelled


class Running:
    """Those that are kept; of others nobody knows the id before their end."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._storing: dict[str, asyncio.Task[Any]] = {}
        self._streams: dict[str, LastingAnswer] = {}

    async def run(self, response_id: str, answering: Coroutine[Any, Any, None]) -> None:
        """Has one answered. Raises as that does, and ApiError where it is cancelled by `cancel`."""
        task = asyncio.create_task(answering)
        self._tasks[response_id] = task
        try:
            await task
        except asyncio.CancelledError:
            if response_id in self._tasks:
                raise
            raise cancelled() from None
        finally:
            self._tasks.pop(response_id, None)

    def tells(self, response_id: str, stream: LastingAnswer) -> None:
        """One that is about to run is told there, until that is over."""
        self._streams[response_id] = stream

    def is_told(self, stream: LastingAnswer) -> None:
        """All of it."""
        self._streams = {each: there for each, there in self._streams.items() if there is not stream}

    def stream(self, response_id: str) -> LastingAnswer | None:
        """Where one that runs is told; None: it does not run here, or nowhere but to its client."""
        return self._streams.get(response_id)

    def runs(self, response_id: str) -> bool:
        return response_id in self._tasks

    def stores(self, response_id: str, task: "asyncio.Task[Any]") -> None:
        """One is being stored, behind what was before; that may last longer than its answer."""

        def end(_: "asyncio.Task[Any]") -> None:
            if self._storing.get(response_id) is task:
                del self._storing[response_id]

        self._storing[response_id] = task
        task.add_done_callback(end)

    async def settle(self, response_id: str) -> None:
        """All is kept that was to be so far, if it can be."""
        if response_id in self._storing:
            await asyncio.wait({self._storing[response_id]})

    async def cancel(self, response_id: str) -> None:
        """Ends one; how it ended is kept then. Raises ApiError where it does not run here."""
        if response_id not in self._tasks:
            why = "the response is not being answered, or not by this server"
            raise ApiError(400, why, param="response_id", code="not_running")
        task = self._tasks.pop(response_id)
        task.cancel()
        await asyncio.wait({task})
        await self.settle(response_id)
