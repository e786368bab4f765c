"""Keeps responses with the runtime; this server keeps none."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kakeya import ObjectChanged
from kakeya_http_shim.choices.opened import Opened
from kakeya_http_shim.problems import ApiError, TakenOver
from kakeya_http_shim.responses_api.kept.kept_items import KeptItems
from kakeya_http_shim.responses_api.kept.kept_response import Behind, KeptResponse
from kakeya_http_shim.responses_api.responses_writer import ResponsesWriter
from kakeya_http_shim.responses_api.told_stream import Run
from kakeya_http_shim.routes.responses.conversation_store import Conversations
from kakeya_http_shim.routes.responses.looking import Looking
from kakeya_http_shim.routes.responses.stored_response import StoredResponse
from kakeya_shared.process.detached_tasks import DetachedTasks


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
        stored: its object.
        writer: of its answer.
        items: those before the answer, as they are kept; of a response in a conversation those that are new.
        request: as its client sent it, without items.
        joined: None: it is in no conversation.
        own: those of the items that its request has brought.
        after: the response that it goes on from, which has the others; None: it goes on from none.
        run: of one that another server has begun, and that is kept so; else as soon as it begins.
    """

    stored: StoredResponse
    writer: ResponsesWriter
    items: KeptItems
    request: Mapping[str, Any]
    tasks: DetachedTasks
    looking: Looking
    joined: Joined | None = None
    own: Sequence[dict[str, Any]] = ()
    after: str | None = None
    run: Run | None = None
    _begun: "asyncio.Task[bool] | None" = field(default=None, init=False)
    _ended: "asyncio.Task[bool | ApiError] | None" = field(default=None, init=False)

    async def answered(self, answering: Coroutine[Any, Any, None]) -> None:
        """Has it answered. Raises as that does, and ApiError where it is cancelled."""
        await self.looking.running.run(self.stored.response_id, answering)

    def begin(self, opened: Opened) -> None:
        """It has begun: that is kept meanwhile."""
        if not self._stores:
            return
        if self.run is None:
            self.run = _run(self.stored.by, self.request, opened)
            self._begun = self._started(self.stored.write(self._at_begin()))
        else:
            self._begun = self._started(_is_kept())
        if opened.generation is not None:
            opened.generation.before_going_on = self._check

    async def has_begun(self) -> None:
        """That is kept, if it can be."""
        if self._begun is not None:
            await asyncio.wait({self._begun})

    async def end(self, told: bytes) -> bytes:
        """What its client is told in the end, once that is kept; where that fails it says so (`store`).

        Raises:
            ApiError: its conversation does not take what is new.
        """
        self._ended = self._started(self._join_and_store(self._at_end()))
        outcome = await asyncio.shield(self._ended)
        if isinstance(outcome, ApiError):
            raise outcome
        return told if outcome or not self._stores else self.writer.unstored()

    def give_up(self, error: ApiError | None) -> None:
        """It has failed, or (None) nobody wants its end. One that no client knows of is not kept."""
        if self._begun is not None and self._ended is None and not isinstance(error, TakenOver):
            self.writer.give_up(error)
            self._ended = self._started(self._store_end(self._at_end()))

    @property
    def _stores(self) -> bool:
        return self.writer.response.store

    def _started(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = self.tasks.start(work)
        self.looking.running.stores(self.stored.response_id, task)
        return task

    async def _join_and_store(self, kept: KeptResponse) -> bool | ApiError:
        """Whether it is stored, or why its conversation does not take it."""
        if self.joined is not None:
            try:
                await self.joined.add([*self.items, *kept.response["output"]])
            except ApiError as error:
                self.writer.unsay_end()
                if self._begun is not None:
                    self.writer.give_up(error)
                    await self._store_end(self._at_end())
                return error
        return await self._store_end(kept)

    async def _store_end(self, kept: KeptResponse) -> bool:
        if not self._stores:
            return True
        await self.has_begun()
        is_stored = await self.stored.write(kept)
        if self.stored.is_as_written:
            self.looking.latest.stored(kept)
        return is_stored

    def _now(self) -> KeptResponse:
        place = self.joined.place if self.joined else None
        return KeptResponse(self.writer.response_json(), self.items, place, run=self.run)

    def _at_begin(self) -> KeptResponse:
        """Without the items that are kept already: its prompt is being prefilled, which they would slow down."""
        now = self._now()
        return now if self.after is None else replace(now, items=KeptItems(self.own), after=self.after)

    def _at_end(self) -> KeptResponse:
        return replace(self._now(), run=None, told=self.writer.told())

    async def _check(self) -> None:
        """Before its generation goes on where that has broken off. Raises TakenOver: another server does."""
        try:
            await self.stored.check()
        except ObjectChanged as error:
            raise TakenOver from error


def _run(by: str, request: Mapping[str, Any], opened: Opened) -> Run | None:
    """None: no other server could go on with it."""
    generation = opened.generation
    if generation is None or generation.session is None:
        return None
    return Run(
        by=by,
        request=request,
        session_id=generation.session.id,
        resumption=generation.resumption,
        begins=opened.begins,
        fingerprint=opened.fingerprint,
        num_prompt_tokens=opened.num_prompt_tokens,
        num_kept=opened.num_kept,
        said=opened.said,
    )


async def _is_kept() -> bool:
    return True
