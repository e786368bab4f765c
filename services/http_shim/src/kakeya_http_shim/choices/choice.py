"""One answer: a session that is opened, given the prompt, asked, and closed; in one call where the prompt fits."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from kakeya import AsyncClient, AsyncGeneration, AsyncSession, StopReason, TokenDetail
from kakeya_http_shim.choices.ask import Ask
from kakeya_http_shim.choices.echo import echoed
from kakeya_http_shim.choices.open_sessions import OpenSessions
from kakeya_http_shim.problems import unavailable
from kakeya_http_shim.text.answer_text import AnswerText, Delta

FinishReason = Literal["stop", "length"]
_FINISH_REASONS: dict[StopReason, FinishReason] = {
    StopReason.EOS: "stop",
    StopReason.STOP_SEQUENCE: "stop",
    StopReason.MAX_TOKENS: "length",
    StopReason.TRUNCATED: "length",
}
_MAX_SCORED_TOKENS = 4096
"""Of one append whose log-probabilities are wanted: with the five likeliest a token is some 100 bytes on the wire."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The session is there: from now on what passes is the model's time.

    Attributes:
        num_kept: tokens that the model sees at once.
    """

    fingerprint: str
    num_prompt_tokens: int
    num_kept: int

    def spent(self, num_tokens: int) -> "Spent":
        """Once the answer has so many tokens."""
        length = self.num_prompt_tokens + num_tokens
        return Spent(self.num_prompt_tokens, num_tokens, length, min(length, self.num_kept))


@dataclass(frozen=True, slots=True)
class Spent:
    """What an answer took.

    Attributes:
        num_tokens: of the answer, one that ended it included.
        history_length: tokens of prompt and answer.
        num_retained: those that the model still sees.
    """

    num_prompt_tokens: int
    num_tokens: int
    history_length: int
    num_retained: int


@dataclass(frozen=True, slots=True)
class Ended:
    """How an answer ended."""

    finish_reason: FinishReason
    spent: Spent


Event = Opened | Delta | Ended


@dataclass(frozen=True)
class ChoiceMaker:
    """Opens the sessions of answers and runs their turns.

    Attributes:
        open_timeout_seconds: of the opening of a session, the router's queue included; inf for ever.
        max_append_tokens: longer prompts go in parts, in calls of their own.
        splits_reasoning: whether thoughts are told apart where a model has them.
    """

    sessions: OpenSessions
    session_ttl_seconds: int
    open_timeout_seconds: float
    max_append_tokens: int
    splits_reasoning: bool

    async def choice(self, ask: Ask, client: AsyncClient) -> AsyncGenerator[Event, None]:
        """One `Opened`, pieces of the answer, one `Ended`. Raises KakeyaError, ApiError.

        Close it where it is left before its end (`contextlib.aclosing`).
        """
        async with self._opened(ask, client) as (session, turn):
            opened = _opened(ask, session)
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
    async def _opened(
        self, ask: Ask, client: AsyncClient
    ) -> AsyncIterator[tuple[AsyncSession, AsyncGeneration | None]]:
        """The session, and what is generated in it where one call does it all."""
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
        if ask.echoes or len(token_ids) > self.max_append_tokens:
            async with self.sessions.opened(client, timeout_seconds=timeout_seconds, **options) as session:
                yield session, None
        else:
            generation = client.turn(token_ids, open_timeout_seconds=timeout_seconds, **options, **ask.sampling)
            async with self.sessions.turning(generation) as session:
                yield session, generation

    async def _events(
        self, ask: Ask, session: AsyncSession, opened: Opened, turn: AsyncGeneration | None
    ) -> AsyncGenerator[Delta | Ended, None]:
        offset = 0
        if ask.echoes:
            echo = await self._echo(ask, session)
            yield echo
            offset = len(echo.content)
        if not ask.sampling["max_tokens"]:
            yield Ended("length", opened.spent(0))
            return
        text = self._text(ask, offset)
        num_tokens = 0
        async with turn or await self._turn_of_parts(ask, session) as generation:
            while not text.is_stopped and (token_id := await generation.next_token()) is not None:
                num_tokens += 1
                if piece := text.push(token_id, generation.details.pop() if ask.asks_for_logprobs else None):
                    yield piece
        if piece := text.finish(at_stop_token=_is_at_stop_token(generation)):
            yield piece
        yield _ended(opened, generation, text, num_tokens)

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

    def _text(self, ask: Ask, offset: int) -> AnswerText:
        thinking = ask.model.tokenizer.thinking(ask.prompt) if self.splits_reasoning else "not"
        return AnswerText(
            ask.model.tokenizer,
            ask.stop_texts,
            splits_reasoning=thinking != "not",
            begins_in_thought=thinking == "inside",
            min_tokens=ask.min_tokens,
            stop_token_ids=ask.stop_token_ids,
            offset=offset,
            tells_end=ask.echoes,  # scores of a prompt are counted, one entry for each token
        )


def parts(token_ids: list[int], longest: int) -> list[list[int]]:
    """The tokens in parts of at most `longest`."""
    borders = [*range(0, len(token_ids), longest), len(token_ids)]
    return [token_ids[start:end] for start, end in pairwise(borders)]


def _opened(ask: Ask, session: AsyncSession) -> Opened:
    num_kept = (session.sink or 0) + (session.window or 0)
    return Opened(session.fingerprint or "", len(ask.prompt.token_ids), num_kept)


def _is_at_stop_token(generation: AsyncGeneration) -> bool:
    return generation.done is not None and generation.done.stop_reason is StopReason.STOP_SEQUENCE


def _ended(opened: Opened, generation: AsyncGeneration, text: AnswerText, num_tokens: int) -> Ended:
    if text.is_stopped:
        # Left before its end: the runtime may be a few tokens further, which nobody asked for.
        return Ended("stop", opened.spent(num_tokens))
    done = generation.done
    reason = None if done is None else _FINISH_REASONS.get(done.stop_reason)
    if done is None or reason is None:
        raise unavailable("the runtime stopped the answer before its end", "stopped")
    num_retained = done.history_length - (done.num_forgotten_tokens or 0)
    return Ended(reason, Spent(opened.num_prompt_tokens, num_tokens, done.history_length, num_retained))
