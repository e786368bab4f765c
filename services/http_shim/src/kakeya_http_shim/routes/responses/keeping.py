"""Keeps responses with the runtime, and fetches them; this server keeps nothing."""

import asyncio
import re
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from kakeya import AsyncClient, KakeyaError, ObjectNotFound
from kakeya_http_shim.problems import ApiError, from_kakeya
from kakeya_http_shim.responses_api.kept_response import KeptResponse, Unreadable
from kakeya_http_shim.responses_api.responses_writer import ResponsesWriter
from kakeya_http_shim.routes.responses.running import Running
from kakeya_shared.process.detached_tasks import DetachedTasks

_log = structlog.get_logger()

NOT_FOUND: Final = "response_not_found"
_ID: Final = re.compile(r"resp_[0-9a-f]{32}")


async def fetched(client: AsyncClient, response_id: str) -> KeptResponse:
    """What is kept under an id.

    Raises:
        ApiError: 404: there is nothing; as `from_kakeya` has it where the runtime fails.
    """
    if not _ID.fullmatch(response_id):
        raise not_found(response_id)
    try:
        data = await client.fetch_object(response_id)
        return await asyncio.to_thread(KeptResponse.unpacked, data)
    except (ObjectNotFound, Unreadable) as error:
        raise not_found(response_id) from error
    except KakeyaError as error:
        raise from_kakeya(error) from error


async def deleted(client: AsyncClient, response_id: str) -> None:
    """Forgets what is kept. Raises ApiError as `fetched`."""
    if not _ID.fullmatch(response_id):
        raise not_found(response_id)
    try:
        await client.delete_object(response_id)
    except ObjectNotFound as error:
        raise not_found(response_id) from error
    except KakeyaError as error:
        raise from_kakeya(error) from error


def not_found(response_id: str) -> ApiError:
    shown = response_id[:64]
    message = f"there is no response {shown!r}: never stored, deleted or expired"
    return ApiError(404, message, param="response_id", code=NOT_FOUND)


@dataclass(eq=False)
class Keeping:
    """Keeps one response: when it begins, where its client is told of it then, and before it ends.

    Attributes:
        writer: of its answer.
        items: those before the answer, as they are kept.
    """

    client: AsyncClient
    writer: ResponsesWriter
    items: list[dict[str, Any]]
    tasks: DetachedTasks
    running: Running
    response_id: str
    ttl_seconds: int
    _begun: "asyncio.Task[bool] | None" = field(default=None, init=False)
    _ended: "asyncio.Task[bool] | None" = field(default=None, init=False)

    async def run(self, answering: Coroutine[Any, Any, None]) -> None:
        """Has it answered. Raises as that does, and ApiError where it is cancelled."""
        await self.running.run(self.response_id, answering)

    def begin(self) -> None:
        """It has begun: that is kept meanwhile."""
        self._begun = self.tasks.start(self._store(self._now()))
        self.running.stores(self.response_id, self._begun)

    async def end(self, told: bytes) -> bytes:
        """What its client is told in the end, once that is kept; where that fails it says so (`store`)."""
        return told if await asyncio.shield(self._end()) else self.writer.unstored()

    def give_up(self, error: ApiError | None) -> None:
        """It has failed, or (None) nobody wants its end. One that no client knows of is not kept."""
        if self._begun is not None and self._ended is None:
            self.writer.give_up(error)
            self._end()

    def _end(self) -> "asyncio.Task[bool]":
        is_deleted = self.running.is_forgotten(self.response_id)
        self._ended = self.tasks.start(_nothing() if is_deleted else self._store(self._now(), behind=self._begun))
        self.running.stores(self.response_id, self._ended)
        return self._ended

    def _now(self) -> KeptResponse:
        return KeptResponse(self.writer.response_json(), self.items)

    async def _store(self, kept: KeptResponse, behind: "asyncio.Task[bool] | None" = None) -> bool:
        """Whether that has gone well.

        Args:
            behind: what is stored before this.
        """
        if behind is not None:
            await asyncio.wait({behind})
        try:
            data = await asyncio.to_thread(kept.packed)
            await self.client.store_object(kept.response["id"], data, ttl_seconds=self.ttl_seconds)
        except KakeyaError as error:
            _log.warning("a response was not stored", error=f"{type(error).__name__}: {error}")
            if behind is not None:
                await self._forget(kept.response["id"])
            return False
        return True

    async def _forget(self, response_id: str) -> None:
        """Its beginning says that it goes on, which it does not; its time to live ends it where this fails."""
        try:
            await self.client.delete_object(response_id)
        except KakeyaError as error:
            _log.info("a response's beginning stays", error=f"{type(error).__name__}: {error}")


async def _nothing() -> bool:
    """Of one that was deleted while it was answered."""
    return True
