"""One answer: a session that is opened, given the prompt, asked, and closed; in one call where the prompt fits."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from kakeya import AsyncClient, AsyncGeneration, AsyncSession, GenerateResult, StopReason
from kakeya_http_shim.choices.ask import Ask
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


@dataclass(frozen=True, slots=True)
class Opened:
    """The session is there: from now on what passes is the model's time."""

    fingerprint: str


@dataclass(frozen=True, slots=True)
class Ended:
    """How an answer ended.

    Attributes:
        num_tokens: of the answer, one that ended it included.
        history_length: tokens of prompt and answer.
        num_retained: those that the model still sees.
    """

    finish_reason: FinishReason
    num_prompt_tokens: int
    num_tokens: int
    history_length: int
    num_retained: int


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
        async with self._opened(ask, client) as (session, generation):
            yield Opened(session.fingerprint or "")
            ended = None
            async with aclosing(self._answer(ask, session, generation)) as events:
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
        if len(token_ids) > self.max_append_tokens:
            async with self.sessions.opened(client, timeout_seconds=timeout_seconds, **options) as session:
                yield session, None
        else:
            generation = client.turn(token_ids, open_timeout_seconds=timeout_seconds, **options, **ask.sampling)
            async with self.sessions.turning(generation) as session:
                yield session, generation

    async def _answer(
        self, ask: Ask, session: AsyncSession, turn: AsyncGeneration | None
    ) -> AsyncGenerator[Delta | Ended, None]:
        text = self._text(ask)
        num_tokens = 0
        async with turn or await self._turn_of_parts(ask, session) as generation:
            while not text.is_stopped and (token_id := await generation.next_token()) is not None:
                num_tokens += 1
                if piece := text.push(token_id, generation.details.pop() if ask.asks_for_logprobs else None):
                    yield piece
        if piece := text.finish():
            yield piece
        yield _ended(ask, session, generation, text, num_tokens)

    async def _turn_of_parts(self, ask: Ask, session: AsyncSession) -> AsyncGeneration:
        *before, last = parts(ask.prompt.token_ids, self.max_append_tokens)
        for part in before:
            await session.append(part)
        return session.turn(last, **ask.sampling)

    def _text(self, ask: Ask) -> AnswerText:
        tokenizer = ask.model.tokenizer
        splits = self.splits_reasoning and tokenizer.thinks and ask.prompt.is_chat
        return AnswerText(
            tokenizer,
            ask.stop_texts,
            splits_reasoning=splits,
            begins_in_thought=splits and tokenizer.starts_in_thought(ask.prompt.token_ids),
        )


def parts(token_ids: list[int], longest: int) -> list[list[int]]:
    """The tokens in parts of at most `longest`."""
    borders = [*range(0, len(token_ids), longest), len(token_ids)]
    return [token_ids[start:end] for start, end in pairwise(borders)]


def _ended(ask: Ask, session: AsyncSession, generation: AsyncGeneration, text: AnswerText, num_tokens: int) -> Ended:
    num_prompt_tokens = len(ask.prompt.token_ids)
    history_length = num_prompt_tokens + num_tokens
    if text.is_stopped:
        # Left before its end: the runtime may be a few tokens further, which nobody asked for.
        num_retained = min(history_length, (session.sink or 0) + (session.window or 0))
        return Ended("stop", num_prompt_tokens, num_tokens, history_length, num_retained)
    done = generation.done
    reason = None if done is None else _FINISH_REASONS.get(done.stop_reason)
    if done is None or reason is None:
        raise unavailable("the runtime stopped the answer before its end", "stopped")
    return Ended(reason, num_prompt_tokens, num_tokens, done.history_length, _num_retained(done))


def _num_retained(done: GenerateResult) -> int:
    return done.history_length - (done.num_forgotten_tokens or 0)
