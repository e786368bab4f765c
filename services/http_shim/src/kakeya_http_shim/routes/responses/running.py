"""Responses that are being answered by this server, so that they can be cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.routes.responses.keeping import Keeping

_NOT_RUNNING = "not_running"


class Running:
    """Those that are kept; of others nobody knows the id before their end."""

    def __init__(self) -> None:
        self._tasks: dict[str, tuple[asyncio.Task[None], Keeping]] = {}

    async def run(self, response_id: str, keeping: Keeping, work: Coroutine[Any, Any, None]) -> None:
        """Answers one. Raises as `work` does, and ApiError where it is cancelled by `cancel`."""
        task = asyncio.create_task(work)
        self._tasks[response_id] = task, keeping
        try:
            await task
        except asyncio.CancelledError:
            if response_id in self._tasks:
                raise
            raise ApiError(409, "the response was cancelled", code="cancelled") from None
        finally:
            self._tasks.pop(response_id, None)

    def keeping(self, response_id: str) -> Keeping | None:
        """Of one that runs; None: it does not."""
        _, found = self._tasks.get(response_id, (None, None))
        return found

    async def cancel(self, response_id: str) -> None:
        """Ends one; how it ended is kept then. Raises ApiError where it does not run here."""
        if response_id not in self._tasks:
            raise ApiError(
                400,
                "the response is not being answered, or not by this server",
                param="response_id",
                code=_NOT_RUNNING,
            )
        task, keeping = self._tasks.pop(response_id)
        task.cancel()
        await asyncio.wait({task})
        await keeping.settled()
