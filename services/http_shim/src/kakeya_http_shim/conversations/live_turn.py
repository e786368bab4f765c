"""A turn of a chat in its live session: the places that it makes are tagged, so that the next request finds them."""

import asyncio
from collections.abc import Sequence

import structlog

from kakeya import AsyncGeneration, AsyncSession, KakeyaError, PlaceKind, StopReason
from kakeya_http_shim.conversations.chat import Conversation
from kakeya_http_shim.conversations.said import Said
from kakeya_http_shim.conversations.way import Way
from kakeya_http_shim.metrics import Metrics
from kakeya_http_shim.text.answer_form import AnswerForm
from kakeya_http_shim.text.delta import Delta
from kakeya_shared.process.detached_tasks import DetachedTasks

_log = structlog.get_logger()

_LEAVE_SECONDS = 10.0
"""How long the end of an answer may wait for what was cut of it to be taken back, so that the next request finds its
place free. A busy worker may take seconds; the fork that the next request would go on in costs it more than that."""


class LiveTurn:
    """A turn that has begun.

    Attributes:
        way: as it came about.
        session: that it is in.
        generation: its answer, to be entered.
        fingerprint, num_kept: of the session, as `Opened` has them.
        is_appended: its prompt is in the history already, by calls of their own.
        is_tagged: the place where its answer begins has its tag as soon as its prompt is in the history.
    """

    def __init__(
        self,
        conversation: Conversation,
        way: Way,
        session: AsyncSession,
        generation: AsyncGeneration,
        metrics: Metrics,
        tasks: DetachedTasks,
    ) -> None:
        self.way = way
        self.session = session
        self.generation = generation
        self.fingerprint = session.fingerprint or ""
        self.num_kept = (session.sink or 0) + (session.window or 0)
        self.is_appended = self.is_tagged = False
        self._conversation = conversation
        self._metrics = metrics
        self._tasks = tasks
        self._start: asyncio.Future[bool] | None = None
        self._is_at_end = False

    @property
    def said(self) -> Said:
        return self.way.said(self.session.id)

    def has_appended(self) -> "asyncio.Future[bool]":
        """Its prompt is in the history: the place where its answer begins is tagged, beside what is generated."""
        if self._start is None and self.is_tagged:
            self._start = asyncio.get_running_loop().create_future()
            self._start.set_result(True)
        if self._start is None:
            tag = self._conversation.start_tag
            self._start = self._tasks.start(self._tag(PlaceKind.ANSWER_START, self.way.answer_start, tag))
        return self._start

    async def answered(self, token_ids: Sequence[int], told: Delta, form: AnswerForm) -> None:
        """The client was told all of an answer but its end, which is tagged first if that is what its tokens say.

        Args:
            token_ids: all that were generated.
            told: all that the client got.
            form: what the answer was told apart into.
        """
        await asyncio.shield(self.has_appended())
        closed = self._is_closed(token_ids, told)
        if closed is None:
            return
        token_ids = token_ids[:-1] if closed else token_ids
        if form.is_told_by(token_ids, told):
            length = self.way.answer_start + len(token_ids) + closed
            tag = self._conversation.end_tag(told, closed=closed)
            self._is_at_end = await asyncio.shield(self._tasks.start(self._tag(PlaceKind.ANSWER_END, length, tag)))

    async def leave(self) -> None:
        """The session is left at a place that it is found by, in a moment if not now."""
        if not self._is_at_end:
            await asyncio.wait({self.go_back()}, timeout=_LEAVE_SECONDS)

    def go_back(self) -> "asyncio.Task[None]":
        """Has taken back what was generated."""
        return self._tasks.start(self._go_back())

    def _is_closed(self, token_ids: Sequence[int], told: Delta) -> bool | None:
        """Whether the answer has its last token; None where it was cut otherwise, or ended in another way.

        Behind calls some models say another one than their templates write (Llama's `<|eom_id|>`): it stays as it was.
        """
        done = self.generation.done
        reason = None if done is None else done.stop_reason
        if reason is StopReason.EOS and (
            told.has_calls or token_ids[-1] == self._conversation.tokenizer.end_of_turn_id
        ):
            return True
        return False if reason is StopReason.MAX_TOKENS else None

    async def _tag(self, kind: PlaceKind, length: int, tag: bytes) -> bool:
        try:
            await self.session.tag(kind, length, [tag], op_id=self.generation.op_id)
        except KakeyaError as error:  # the next request begins anew, or further up
            _log.warning("a place was not tagged", place=kind, error=f"{type(error).__name__}: {error}")
            self._metrics.failed_tags.labels(kind.value).inc()
            return False
        return True

    async def _go_back(self) -> None:
        """Takes back what no tag names, unless another request has come since.

        A session of which nothing is tagged is closed: none would find it.
        """
        if self.generation.op_id and (self.is_appended or self.generation.appended is not None):
            self.has_appended()
        is_named = self.is_tagged or (self._start is not None and await self._start)
        length = self.way.answer_start if is_named else self.way.place
        try:
            if is_named or self.way.is_known:
                await self.session.rewind(length, only_untagged=True, op_id=self.generation.op_id or "")
            else:
                await self.session.close()
        except KakeyaError as error:  # the next request goes on elsewhere
            _log.info("a cut answer stays", error=f"{type(error).__name__}: {error}")
