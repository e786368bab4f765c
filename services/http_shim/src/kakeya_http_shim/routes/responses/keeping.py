"""Keeps responses with the runtime, and fetches them; this server keeps nothing."""

import asyncio
import re
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from kakeya import AsyncClient, KakeyaError, ObjectNotFound
from kakeya_http_shim.problems import ApiError, from_kakeya
from kakeya_http_shim.responses_api.kept_response import Behind, KeptResponse
from kakeya_http_shim.responses_api.packing import Unreadable
from kakeya_http_shim.responses_api.responses_writer import ResponsesWriter
from kakeya_http_shim.routes.responses.conversation_store import Conversations
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
        found = await client.fetch_object(response_id)
        return await asyncio.to_thread(KeptResponse.unpacked, found.data)
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


@dataclass(frozen=True)
class Joined:
    """The conversation that a response is in.

    Attributes:
        place: where the response was asked for.
    """

    conversations: Conversations
    place: Behind

    async def add(self, items: Sequence[dict[str, Any]]) -> None:
        """Raises ApiError."""
        await self.conversations.add(self.place.conversation_id, items, field="input")


@dataclass(eq=False)
class Keeping:
    """Keeps one response: when it begins, where its client is told of it then, and before it ends. What is new of a
    conversation is added to it before that.

    Attributes:
        writer: of its answer.
        items: those before the answer, as they are kept; of a response in a conversation those that are new.
        joined: None: it is in no conversation.
    """

    client: AsyncClient
    writer: ResponsesWriter
    items: list[dict[str, Any]]
    tasks: DetachedTasks
    running: Running
    response_id: str
    ttl_seconds: int
    joined: Joined | None = None
    _begun: "asyncio.Task[bool] | None" = field(default=None, init=False)
    _ended: "asyncio.Task[bool | ApiError] | None" = field(default=None, init=False)

    async def run(self, answering: Coroutine[Any, Any, None]) -> None:
        """Has it answered. Raises as that does, and ApiError where it is cancelled."""
        await self.running.run(self.response_id, answering)

    def begin(self) -> None:
        """It has begun: that is kept meanwhile."""
        if self._stores:
            self._begun = self.tasks.start(self._store(self._now()))
            self.running.stores(self.response_id, self._begun)

    async def end(self, told: bytes) -> bytes:
        """What its client is told in the end, once that is kept; where that fails it says so (`store`).

        Raises:
            ApiError: its conversation does not take what is new.
        """
        outcome = await asyncio.shield(self._end())
        if isinstance(outcome, ApiError):
            self.writer.unsay_end()
            raise outcome
        return told if outcome or not self._stores else self.writer.unstored()

    def give_up(self, error: ApiError | None) -> None:
        """It has failed, or (None) nobody wants its end. One that no client knows of is not kept."""
        if self._begun is not None and self._ended is None:
            self.writer.give_up(error)
            self._start_end(self._store_end(self._now()))

    @property
    def _stores(self) -> bool:
        return self.writer.response.store

    def _end(self) -> "asyncio.Task[bool | ApiError]":
        return self._start_end(self._join_and_store(self._now()))

    def _start_end(self, work: Coroutine[Any, Any, bool | ApiError]) -> "asyncio.Task[bool | ApiError]":
        self._ended = self.tasks.start(work)
        self.running.stores(self.response_id, self._ended)
        return self._ended

    async def _join_and_store(self, kept: KeptResponse) -> bool | ApiError:
        """Whether it is stored, or why its conversation does not take it."""
        if self.joined is not None:
            try:
                await self.joined.add([*self.items, *kept.response["output"]])
            except ApiError as error:
                if self._begun is not None:
                    self.writer.give_up(error)
                    await self._store_end(self._now())
                return error
        return await self._store_end(kept)

    async def _store_end(self, kept: KeptResponse) -> bool:
        if not self._stores or self.running.is_forgotten(self.response_id):
            return True
        return await self._store(kept, behind=self._begun)

    def _now(self) -> KeptResponse:
        return KeptResponse(self.writer.response_json(), self.items, self.joined.place if self.joined else None)

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
