"""One answer: in a session that is opened, given the prompt, asked, and closed, or in the live session of its chat."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from kakeya import (
    AsyncClient,
    AsyncGeneration,
    AsyncSession,
    BoundaryNotReachable,
    Conflict,
    SessionNotFound,
    StopReason,
    TokenDetail,
)
from kakeya_http_shim.choices.ask import Ask, Live, Resumed
from kakeya_http_shim.choices.echo import echoed
from kakeya_http_shim.choices.open_sessions import OpenSessions
from kakeya_http_shim.choices.opened import Opened, Spent
from kakeya_http_shim.choices.telling import Begun, Seconds, Telling
from kakeya_http_shim.conversations.branches import Branches, Source, branched_off
from kakeya_http_shim.conversations.live_sessions import Begin, LiveSessions
from kakeya_http_shim.conversations.live_turn import LiveTurn
from kakeya_http_shim.conversations.parts import parts
from kakeya_http_shim.conversations.said import Said
from kakeya_http_shim.problems import unavailable
from kakeya_http_shim.text.delta import Delta

FinishReason = Literal["stop", "length", "tool_calls"]
_FINISH_REASONS: dict[StopReason, FinishReason] = {
    StopReason.EOS: "stop",
    StopReason.STOP_SEQUENCE: "stop",
    StopReason.MAX_TOKENS: "length",
    StopReason.TRUNCATED: "length",
}
_MAX_SCORED_TOKENS = 4096
"""Of one append whose log-probabilities are wanted: with the five likeliest a token is some 100 bytes on the wire."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How an answer ended.

    Attributes:
        stop_text: of the client's, that ended it; None: none did.
        is_full: its session refuses to forget, and has no more room.
        seconds: how long it took, from where its session was there.
    """

    finish_reason: FinishReason
    spent: Spent
    stop_text: str | None = None
    is_full: bool = False
    seconds: Seconds = field(default_factory=Seconds)


Event = Opened | Begun | Delta | Ended
_Held = tuple[AsyncSession, AsyncGeneration | None, Opened]
"""A session, what is generated in it where one call does it all, and what is told of it."""


@dataclass(frozen=True)
class ChoiceMaker:
    """Opens the sessions of answers and runs their turns.

    Attributes:
        live: those of chats.
        open_timeout_seconds: of the opening of a session, the router's queue included; inf for ever.
        max_append_tokens: longer prompts go in parts, in calls of their own.
        splits_reasoning: whether thoughts are told apart where a model has them.
    """

    sessions: OpenSessions
    live: LiveSessions
    session_ttl_seconds: int
    open_timeout_seconds: float
    max_append_tokens: int
    splits_reasoning: bool

    def choice(self, ask: Ask, client: AsyncClient) -> AsyncGenerator[Event, None]:
        """One `Opened`, one `Begun` where a token comes, pieces of the answer, one `Ended`.

        Close it where it is left before its end (`contextlib.aclosing`). Raises KakeyaError, ApiError.
        """
        live = ask.live
        if live is None:
            opening = self._opened(ask, client) if ask.resumed is None else _resumed(ask.resumed)
            return self._alone(ask, opening)
        if live.branches is not None and not live.is_first:
            return self._alone(ask, self._forked(ask, live.branches, client))
        return self._live(ask, live, client)

    async def _live(self, ask: Ask, live: Live, client: AsyncClient) -> AsyncGenerator[Event, None]:
        begin = Begin(client, live.chat, ask.label, ask.sampling, live.branches)
        if ask.resumed is None:
            turning = self.live.turning(begin, live.way)
        else:
            turning = self.live.going_on(begin, live.way, ask.resumed.generation)
        async with turning as turn:
            opened = ask.resumed.opened if ask.resumed else _opened_live(ask, turn)
            yield opened
            telling = Telling(replace(ask, prompt=turn.way.prompt), splits_reasoning=self.splits_reasoning)
            async with aclosing(telling.pieces(turn.generation, turn.has_appended)) as pieces:
                async for piece in pieces:
                    yield piece
            ended = await _ended(ask, opened, turn.generation, telling)
            if not telling.is_stopped:
                await turn.answered(telling.token_ids, telling.told, telling.form)
        yield ended  # once its place is named, or free again

    async def _alone(self, ask: Ask, opening: AbstractAsyncContextManager[_Held]) -> AsyncGenerator[Event, None]:
        """In a session that ends with the answer."""
        async with opening as (session, turn, opened):
            yield opened
            ended = None
            async with aclosing(self._events(ask, session, opened, turn)) as events:
                async for event in events:
                    if isinstance(event, Ended):
                        ended = event
                    else:
                        yield event
        if ended is not None:  # once the session is closed
            yield ended

    @asynccontextmanager
    async def _opened(self, ask: Ask, client: AsyncClient) -> AsyncIterator[_Held]:
        """A new session; one call does it all where the prompt fits."""
        options: dict[str, Any] = {
            "model": ask.model.served.name,
            "eos_token_ids": ask.model.tokenizer.eos_token_ids,
            "pin": ask.prompt.num_pinned or None,
            "on_overflow": ask.on_overflow,
            "label": ask.label,
            "ttl_seconds": self.session_ttl_seconds,
            "ephemeral": True,
        }
        token_ids, timeout_seconds = ask.prompt.token_ids, self.open_timeout_seconds
        said = Said("new", "", len(token_ids), 0, ask.why_not_live) if ask.why_not_live else None
        if ask.echoes or len(token_ids) > self.max_append_tokens:
            async with self.sessions.opened(client, timeout_seconds=timeout_seconds, **options) as session:
                yield session, None, _opened(session, len(token_ids), said)
        else:
            generation = client.turn(token_ids, open_timeout_seconds=timeout_seconds, **options, **ask.sampling)
            async with self.sessions.turning(generation) as session:
                opened = _opened(session, len(token_ids), said)
                begins = ask.model.tokenizer.thinking(ask.prompt)
                yield session, generation, replace(opened, begins=begins, generation=generation)

    @asynccontextmanager
    async def _forked(self, ask: Ask, branches: Branches, client: AsyncClient) -> AsyncIterator[_Held]:
        """A fork of the session in which the first of several answers is."""

        def generation(source: Source) -> AsyncGeneration:
            return client.turn(
                [],
                fork_from=source.session_id,
                boundary=source.place,
                label=ask.label,
                ttl_seconds=self.session_ttl_seconds,
                open_timeout_seconds=self.open_timeout_seconds,
                **ask.sampling,
            )

        source, is_late = await branches.source(), False
        turn = generation(source)
        try:
            await turn.begin()
        except (Conflict, BoundaryNotReachable, SessionNotFound):
            # The first has gone on in this moment, or another request has taken back what it stood on.
            is_late = True
        finally:
            branches.come()
        if is_late:
            source = await branches.begun()
            turn = await branched_off(lambda: generation(source))
        async with self.sessions.turning(turn) as session:
            # What clients are told of their session is the first's, as it came about.
            yield session, turn, _opened(session, source.place, (await branches.begun()).said)

    async def _events(
        self, ask: Ask, session: AsyncSession, opened: Opened, turn: AsyncGeneration | None
    ) -> AsyncGenerator[Begun | Delta | Ended, None]:
        offset = 0
        if ask.echoes:
            echo = await self._echo(ask, session)
            yield echo
            offset = len(echo.content)
        if not ask.sampling["max_tokens"]:
            yield Ended("length", opened.spent(0))
            return
        telling = Telling(ask, splits_reasoning=self.splits_reasoning, offset=offset)
        generation = turn or await self._turn_of_parts(ask, session)
        async with aclosing(telling.pieces(generation)) as pieces:
            async for piece in pieces:
                yield piece
        yield await _ended(ask, opened, generation, telling)

    async def _turn_of_parts(self, ask: Ask, session: AsyncSession) -> AsyncGeneration:
        if ask.echoes:  # its parts are there
            return session.generate(**ask.sampling)
        *before, last = parts(ask.prompt.token_ids, self.max_append_tokens)
        for part in before:
            await session.append(part)
        return session.turn(last, **ask.sampling)

    async def _echo(self, ask: Ask, session: AsyncSession) -> Delta:
        """The prompt, once it is in the session."""
        num_likeliest = ask.sampling["logprobs"]
        longest = self.max_append_tokens if num_likeliest is None else min(self.max_append_tokens, _MAX_SCORED_TOKENS)
        details: list[TokenDetail] = []
        for part in parts(ask.prompt.token_ids, longest):
            details += (await session.append(part, logprobs=num_likeliest)).details
        if num_likeliest is not None and len(details) < len(ask.prompt.token_ids) - 1:
            raise unavailable(
                "a connection broke, and what the prompt's tokens were like went with it", "logprobs_lost"
            )
        wanted = None if num_likeliest is None else details
        return await asyncio.to_thread(echoed, ask.prompt, ask.model.tokenizer, wanted)


@asynccontextmanager
async def _resumed(resumed: Resumed) -> AsyncIterator[_Held]:
    """A session that ends with the answer by itself."""
    session = cast(AsyncSession, resumed.generation.session)  # that it was attached to
    yield session, resumed.generation, resumed.opened


def _opened_live(ask: Ask, turn: LiveTurn) -> Opened:
    begins = ask.model.tokenizer.thinking(turn.way.prompt)
    return Opened(turn.fingerprint, turn.way.answer_start, turn.num_kept, turn.said, begins, turn.generation)


def _opened(session: AsyncSession, num_prompt_tokens: int, said: Said | None) -> Opened:
    num_kept = (session.sink or 0) + (session.window or 0)
    return Opened(session.fingerprint or "", num_prompt_tokens, num_kept, said)


async def _ended(ask: Ask, opened: Opened, generation: AsyncGeneration, telling: Telling) -> Ended:
    ended = _told_end(opened, generation, telling)
    spent = ended.spent
    if ask.watch is None:
        return ended
    forgotten = await ask.watch.forgotten(spent.history_length - spent.num_retained, generation.done)
    return replace(ended, spent=replace(spent, forgotten=forgotten))


def _told_end(opened: Opened, generation: AsyncGeneration, telling: Telling) -> Ended:
    num_tokens = len(telling.token_ids)
    if telling.is_stopped:
        # Left before its end: the runtime may be a few tokens further, which nobody asked for.
        stopped: FinishReason = "tool_calls" if telling.has_calls else "stop"
        spent = replace(opened.spent(num_tokens), num_reasoning_tokens=telling.num_reasoning_tokens)
        return Ended(stopped, spent, telling.stop_text, seconds=telling.seconds)
    done = generation.done
    reason = None if done is None else _FINISH_REASONS.get(done.stop_reason)
    if done is None or reason is None:
        raise unavailable("the runtime stopped the answer before its end", "stopped")
    if telling.has_calls:
        reason = "tool_calls"
    num_retained = done.history_length - (done.num_forgotten_tokens or 0)
    spent = Spent(
        opened.num_prompt_tokens,
        num_tokens,
        done.history_length,
        num_retained,
        opened.said,
        num_drafted=done.num_drafted_tokens,
        num_accepted=done.num_accepted_tokens,
        num_reasoning_tokens=telling.num_reasoning_tokens,
    )
    return Ended(reason, spent, is_full=done.stop_reason is StopReason.TRUNCATED, seconds=telling.seconds)
