"""Sessions that hold what conversations begin with alike: a head is prefilled once, and they branch off from there."""

import asyncio
import time
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import structlog

from kakeya import AsyncClient, Conflict, KakeyaError, PlaceKind
from kakeya_http_shim.conversations.chat import Chat
from kakeya_http_shim.conversations.said import Why
from kakeya_http_shim.conversations.way import Way
from kakeya_http_shim.models.prompt import Prompt
from kakeya_shared.process.detached_tasks import DetachedTasks

_log = structlog.get_logger()

_OTHERS_SECONDS = 60.0
"""How long another server's prefill of a head is waited for. Where that server is lost, it is gone on with sooner."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 0.5


@dataclass(frozen=True, slots=True)
class SessionSeconds:
    """Idle times of live sessions, after which they are parked and closed."""

    to_park: int
    to_close: int


@dataclass(frozen=True)
class Heads:
    """Finds and makes head sessions.

    Attributes:
        min_tokens: shorter heads are prefilled with each conversation.
        max_append_tokens: longer ones go in parts.
        session_seconds: as of `LiveSessions`.
        tasks: what goes on when its request is gone.
    """

    min_tokens: int
    max_append_tokens: int
    session_seconds: SessionSeconds
    tasks: DetachedTasks
    _made: dict[bytes, "asyncio.Task[_Made | KakeyaError]"] = field(default_factory=dict, init=False)

    def is_for_one_turn(self, prompt: Prompt) -> bool:
        """Whether it is appended by a turn alone: it is not long, and no head of it is to be shared."""
        return not self._is_shared(prompt) and len(prompt.token_ids) <= self.max_append_tokens

    def _is_shared(self, prompt: Prompt) -> bool:
        return self.min_tokens <= prompt.num_pinned < len(prompt.token_ids)

    async def way(self, client: AsyncClient, chat: Chat, prompt: Prompt, why: Why, *, is_absent: bool) -> Way:
        """From a session with the head of a whole prompt, where that is worth it; else in one of its own.

        Whatever fails here does not fail the request.
        """
        plain = Way("new", why, prompt)
        if not self._is_shared(prompt):
            return plain
        try:
            found = None if is_absent else await self._found(client, chat)
        except KakeyaError as error:
            return _not_shared(error, plain)
        if found is not None:
            return behind_head(prompt, found)
        is_first = self._flight(chat) not in self._made
        made = await self._make(client, chat, prompt)
        if isinstance(made, KakeyaError):
            return _not_shared(made, plain)
        behind = behind_head(prompt, made.session_id)
        if not (is_first and made.is_own):
            return behind
        # Nothing was there before for the request that has it prefilled. It parks it once its own session is there.
        return replace(behind, state="new", why=why, num_reused=0, parks_source=True)

    async def _found(self, client: AsyncClient, chat: Chat) -> str | None:
        conversation = chat.conversation
        found = await client.find_session([conversation.head_tag], model=conversation.model.served.name)
        return found.id if found else None

    def _flight(self, chat: Chat) -> bytes:
        return chat.owner + chat.conversation.head_tag

    async def _make(self, client: AsyncClient, chat: Chat, prompt: Prompt) -> "_Made | KakeyaError":
        """Once for all who want it meanwhile."""
        flight = self._flight(chat)
        if flight not in self._made:
            self._made[flight] = task = self.tasks.start(self._made_or_not(client, chat, prompt))
            task.add_done_callback(lambda _: self._made.pop(flight))
        return await asyncio.shield(self._made[flight])

    async def _made_or_not(self, client: AsyncClient, chat: Chat, prompt: Prompt) -> "_Made | KakeyaError":
        """Nobody may be left who would hear what it raises."""
        try:
            return await self._prefilled(client, chat, prompt)
        except KakeyaError as error:
            return error

    async def _prefilled(self, client: AsyncClient, chat: Chat, prompt: Prompt) -> "_Made":
        """Goes on where another server has ended, or waits until it has. Raises KakeyaError."""
        tag, head = chat.conversation.head_tag, prompt.token_ids[: prompt.num_pinned]
        session = await client.create_session(
            **session_options(chat, prompt, self.session_seconds),
            label="http head",
            head=True,
            # So that several servers that want it in one moment get the same one.
            request_id=f"head-{blake2b(tag, digest_size=16).hexdigest()}",
        )
        length, is_own, pause_seconds = session.history_length or 0, False, _FIRST_PAUSE_SECONDS
        until = time.monotonic() + _OTHERS_SECONDS
        while True:
            try:
                while length < len(head):
                    length = (await session.append(head[length : length + self.max_append_tokens])).history_length
                    is_own = True
                if not is_own:  # the tokens are in the history before they are prefilled: nobody may be at it any more
                    await session.rewind(len(head))
                await session.tag(PlaceKind.HEAD, len(head), [tag])
            except Conflict:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
                if found := await self._found(client, chat):
                    return _Made(found, False)
                length = (await client.session(session.id).info()).history_length
                session = client.session(session.id, history_length=length)
            else:
                return _Made(session.id, is_own)


@dataclass(frozen=True, slots=True)
class _Made:
    """A session with a head; `is_own`: this server has prefilled of it."""

    session_id: str
    is_own: bool


def _not_shared(error: KakeyaError, plain: Way) -> Way:
    _log.warning("a head was not shared", error=f"{type(error).__name__}: {error}")
    return plain


def behind_head(prompt: Prompt, session_id: str) -> Way:
    """In a session that branches off from one that has the head of a whole prompt."""
    place = prompt.num_pinned
    return Way("forked", "head", prompt.after(place), source=session_id, place=place, num_reused=place, is_branch=True)


def session_options(chat: Chat, prompt: Prompt, seconds: SessionSeconds) -> dict[str, Any]:
    """What all live sessions of a conversation are created with."""
    conversation = chat.conversation
    return {
        "model": conversation.model.served.name,
        "eos_token_ids": conversation.tokenizer.eos_token_ids,
        "pin": prompt.num_pinned or None,
        "on_overflow": conversation.on_overflow,
        "ttl_seconds": seconds.to_close,
        "park_after_seconds": seconds.to_park,
        "disposable": True,  # it is prefilled anew where it is gone
    }
