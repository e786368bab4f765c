"""Turns of chats in live sessions: begun where the request was found to go on, or anew where that has just ended."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, cast

import structlog

from kakeya import (
    AsyncClient,
    AsyncGeneration,
    AsyncSession,
    BoundaryNotReachable,
    Conflict,
    FoundElsewhere,
    HistoryFull,
    InvariantViolated,
    KakeyaError,
    NoWorker,
    OperationRunning,
    SessionNotFound,
    SnapshotRefused,
    WorkerLost,
)
from kakeya_http_shim.conversations.branches import Branches, Source
from kakeya_http_shim.conversations.chat import Chat
from kakeya_http_shim.conversations.finding import Finding, can_search
from kakeya_http_shim.conversations.heads import SessionSeconds, session_options
from kakeya_http_shim.conversations.live_turn import LiveTurn
from kakeya_http_shim.conversations.parts import parts
from kakeya_http_shim.conversations.said import Why
from kakeya_http_shim.conversations.way import Search, Way
from kakeya_http_shim.metrics import Metrics
from kakeya_http_shim.problems import TakenOver
from kakeya_shared.process.detached_tasks import DetachedTasks

_log = structlog.get_logger()

_HEAD_PAUSES_SECONDS = (0.02, 0.1, 0.5)
"""Between tries to branch off from a head: no answer is given in it, so that it is busy for a moment only."""

_ENDED: tuple[tuple[type[KakeyaError], Why], ...] = (
    (SessionNotFound, "gone"),
    (WorkerLost, "gone"),
    (NoWorker, "gone"),  # of its fingerprint, as where the model's weights are others by now
    (SnapshotRefused, "gone"),
    (InvariantViolated, "gone"),
    (BoundaryNotReachable, "gone"),
    (Conflict, "busy"),
    (HistoryFull, "full"),
)
"""What may have become of a session since it was found, as clients are told of it."""
_ENDINGS = tuple(kind for kind, _ in _ENDED)


@dataclass(frozen=True)
class LiveSessions:
    """Begins turns of chats, in the session that was found, in a fork of it, or in a new one.

    Attributes:
        finding: says where one goes on that was not where it was likely to be.
        session_seconds: idle times of a session.
        open_timeout_seconds: of the opening of a session, the router's queue included; inf for ever.
        max_append_tokens: longer prompts go in parts, in calls of their own.
        tasks: what goes on when its request is gone.
    """

    finding: Finding
    session_seconds: SessionSeconds
    open_timeout_seconds: float
    max_append_tokens: int
    metrics: Metrics
    tasks: DetachedTasks

    @asynccontextmanager
    async def turning(self, begin: "Begin", way: Way) -> AsyncIterator[LiveTurn]:
        """The turn of a chat, once its session is there; after it the session is left so that it is found again.

        Raises:
            KakeyaError, ApiError: it cannot begin.
        """
        with begin.branches.beginning() if begin.branches else nullcontext():
            turn = await self._begun(begin, way)
        async with self._left(begin, turn):
            yield turn

    @asynccontextmanager
    async def going_on(self, begin: "Begin", way: Way, generation: AsyncGeneration) -> AsyncIterator[LiveTurn]:
        """Likewise one that another server has begun, and that has begun again here; its way is behind its prompt."""
        turn = self._live(begin, way, generation)
        turn.is_appended = True
        async with self._left(begin, turn):
            yield turn

    @asynccontextmanager
    async def _left(self, begin: "Begin", turn: LiveTurn) -> AsyncIterator[None]:
        try:
            yield
        except TakenOver:
            raise  # what becomes of it is another server's
        except BaseException:
            turn.go_back()
            raise
        await turn.leave()
        if begin.chat.park_after_seconds == 0:
            self.tasks.start(_parked(turn.session))

    async def _begun(self, begin: "Begin", way: Way) -> LiveTurn:
        if way.search is not None:
            found = await self._searched(begin, way, way.search)
            if isinstance(found, LiveTurn):
                return found
            way = found
        try:
            return await (self._off_head(begin, way) if way.is_branch else self._turn(begin, way))
        except _ENDINGS as error:
            if not way.source:
                raise
            return await self._turn(begin, await self._anew(begin, error))

    async def _anew(self, begin: "Begin", error: KakeyaError) -> Way:
        """In place of a session that was found and has ended so."""
        _log.info("a session was found and is of no use", error=f"{type(error).__name__}: {error}")
        why = next(why for kind, why in _ENDED if isinstance(error, kind))
        return Way("new", why, await begin.chat.rendering.whole())

    async def _searched(self, begin: "Begin", way: Way, search: Search) -> LiveTurn | Way:
        """The turn, where it was likely to be; else where it is. Raises KakeyaError."""
        generation = begin.client.turn_found(
            search.tags,
            way.prompt.token_ids,
            expected=search.expected,
            opens=search.opens,
            start_tags=[begin.chat.conversation.start_tag],
            open_timeout_seconds=self.open_timeout_seconds,
            **self._options(begin, way),
            **begin.sampling,
        )
        try:
            await generation.begin()
        except FoundElsewhere:
            return await self.finding.after(begin.client, begin.chat, generation.found)
        except _ENDINGS as error:
            if search.opens:
                raise
            return await self._anew(begin, error)
        way = self.finding.came(begin.chat, way, search, generation.found)
        return self._live(begin, way, generation, is_tagged=True)

    async def _off_head(self, begin: "Begin", way: Way) -> LiveTurn:
        for pause_seconds in _HEAD_PAUSES_SECONDS:
            try:
                return await self._turn(begin, way)
            except OperationRunning:
                await asyncio.sleep(pause_seconds)
        return await self._turn(begin, way)

    async def _turn(self, begin: "Begin", way: Way) -> LiveTurn:
        """Raises KakeyaError."""
        if way.rewinds:
            way = await self._rewound(begin.client, way)
        if begin.branches is not None:
            turn = await self._branching(begin, way, begin.branches)
        elif len(way.prompt.token_ids) > self.max_append_tokens:
            session, last = await self._in_parts(begin, way)
            turn = self._live(begin, way, session.turn(last, **begin.sampling))
            await turn.generation.begin()
        else:
            generation = self._in_one_call(begin, way)
            await generation.begin()
            turn = self._live(begin, way, generation, is_tagged=can_search(begin.chat.conversation))
        if turn.session.fingerprint is None:  # it was gone on with by calls that do not describe it
            turn.fingerprint = (await turn.session.info()).fingerprint
            turn.num_kept = begin.chat.conversation.model.served.num_lane_tokens
        if way.parks_source:
            self.tasks.start(_parked(begin.client.session(way.source)))
        return turn

    def _in_one_call(self, begin: "Begin", way: Way) -> AsyncGeneration:
        if way.source and not way.is_branch:
            return begin.client.turn_at(
                way.source,
                way.place,
                way.prompt.token_ids,
                start_tags=[begin.chat.conversation.start_tag],
                open_timeout_seconds=self.open_timeout_seconds,
                **begin.sampling,
            )
        return begin.client.turn(
            way.prompt.token_ids,
            ephemeral=False,
            start_tags=[begin.chat.conversation.start_tag],
            open_timeout_seconds=self.open_timeout_seconds,
            **self._options(begin, way),
            **begin.sampling,
        )

    def _live(self, begin: "Begin", way: Way, generation: AsyncGeneration, *, is_tagged: bool = False) -> LiveTurn:
        session = cast(AsyncSession, generation.session)  # of a turn that has begun
        if not way.is_branch:
            way = _as_it_came(way, session.id)
        turn = LiveTurn(begin.chat.conversation, way, session, generation, self.metrics, self.tasks)
        turn.is_tagged = is_tagged
        return turn

    async def _rewound(self, client: AsyncClient, way: Way) -> Way:
        """With the tail of an answer that was cut taken back; where that is another request's by now, as a fork."""
        session = client.session(way.source, history_length=way.source_length)
        try:
            await session.rewind(way.place, only_untagged=True)
        except (BoundaryNotReachable, Conflict) as error:
            _log.info("a cut answer stays", error=f"{type(error).__name__}: {error}")
            return replace(way, state="forked")
        return way

    async def _in_parts(self, begin: "Begin", way: Way) -> tuple[AsyncSession, list[int]]:
        """The session with all but the last part of the prompt, appended by calls of their own, and that part."""
        *before, last = parts(way.prompt.token_ids, self.max_append_tokens)
        return await self._appended(begin, way, before), last

    async def _appended(self, begin: "Begin", way: Way, prompt: Sequence[list[int]]) -> AsyncSession:
        if way.state == "continued":
            session = begin.client.session(way.source, history_length=way.place)
        else:
            options = self._options(begin, way)
            session = await begin.client.create_session(timeout_seconds=self.open_timeout_seconds, **options)
        try:
            for part in prompt:
                await session.append(part)
        except BaseException:
            if not way.is_known:
                self.tasks.start(_closed(session))
            raise
        return session

    async def _branching(self, begin: "Begin", way: Way, branches: Branches) -> LiveTurn:
        """The first of several answers: the others branch off before it goes on."""
        session = await self._appended(begin, way, parts(way.prompt.token_ids, self.max_append_tokens))
        turn = self._live(begin, way, session.generate(**begin.sampling))
        turn.is_appended = True
        try:
            await branches.begin(Source(session.id, way.answer_start, turn.said))
            await turn.generation.begin()
        except BaseException:
            turn.go_back()
            raise
        return turn

    def _options(self, begin: "Begin", way: Way) -> dict[str, Any]:
        """Of a session that is made."""
        source = {"fork_from": way.source, "boundary": way.place} if way.source else {}
        options = session_options(begin.chat, way.prompt, self.session_seconds)
        if begin.chat.park_after_seconds is not None:
            options["park_after_seconds"] = min(max(1, begin.chat.park_after_seconds), self.session_seconds.to_close)
        return options | source | {"label": begin.label}


@dataclass(frozen=True)
class Begin:
    """An answer that is to begin.

    Attributes:
        label: of a session that is made for it.
        sampling: what `AsyncSession.turn` takes beside the tokens.
        branches: of the first of several answers; None: it is the only one.
    """

    client: AsyncClient
    chat: Chat
    label: str
    sampling: Mapping[str, Any]
    branches: Branches | None = None


def _as_it_came(way: Way, session_id: str) -> Way:
    """Another request may have come in between, or ended."""
    if session_id == way.source:
        return replace(way, state="continued")
    return replace(way, state="forked", why="busy") if way.state == "continued" else way


async def _closed(session: AsyncSession) -> None:
    """Closes a session that nobody could find; its time to live does where this fails."""
    try:
        await session.close()
    except KakeyaError as error:
        _log.warning("a session could not be closed", error=f"{type(error).__name__}: {error}")


async def _parked(session: AsyncSession) -> None:
    """Its lane is of more use to others; a runtime without a snapshot store keeps it there."""
    try:
        await session.park()
    except KakeyaError as error:
        _log.debug("a session was not parked", error=f"{type(error).__name__}: {error}")
