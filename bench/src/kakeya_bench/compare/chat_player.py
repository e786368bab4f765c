"""A client that knows no sessions: each turn it sends all messages again, its answers as it got them."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kakeya_bench.compare import processes
from kakeya_bench.compare.chats import ChatAnswer, Chats
from kakeya_bench.compare.completions import RivalFailed, check_length
from kakeya_bench.compare.players import Player
from kakeya_bench.compare.rival import Rival
from kakeya_bench.compare.settings import CompareSettings
from kakeya_bench.compare.turns import LongChat, Said, Script
from kakeya_bench.compare.wording import Message, Wording, answered
from kakeya_bench.conversation import clock

NUM_LONG_REQUESTS = 11
SETTLE_SECONDS = 0.1
"""What goes on behind an answer belongs to the request before it."""
_LONG_CONVERSATION = 2  # another one than those that are played, or that all warm up with


class ChatPlayer(Player):
    """Plays every turn as a chat.

    Args:
        chats: entered.
        kv_bytes_per_token: what a token's KV weighs in f16; None where that is not known.
    """

    def __init__(
        self, chats: Chats, rival: Rival, settings: CompareSettings, words: Wording, *, kv_bytes_per_token: int | None
    ) -> None:
        super().__init__(rival.name, settings)
        self._chats = chats
        self._rival = rival
        self._words = words
        self._kv_bytes_per_token = kv_bytes_per_token
        self._messages: list[Message] = []
        self._said_back: str | None = None

    def hear(self, said: Said) -> None:
        super().hear(said)
        self._said_back = None
        self._messages.append(self._words.message(said.new_tokens))

    def settle(self, said: Said, runtime_answer: Sequence[int]) -> None:
        """As in `Player`. Where the turn failed, something else stands for its answer."""
        super().settle(said, runtime_answer)
        text = self._words.text(said.stand_in) if self._said_back is None else self._said_back
        self._messages.append(answered(text))

    async def warm_up(self, new_tokens: Sequence[int]) -> None:
        """As in `Player`. What fails will fail again, where it is counted."""
        with suppress(RivalFailed):
            await self._chats.ask([self._words.message(new_tokens)], self._settings.max_tokens)

    async def rss_bytes(self) -> int | None:
        """As in `Player`: of its processes."""
        return await asyncio.to_thread(processes.rss_bytes, self._rival.url, self._rival.pid)

    async def long_chat(self, script: Script) -> LongChat | None:
        """As in `Player`: in a chat that is sent for the first time with two messages less."""
        if self._rival.messages is None:
            return None
        turns = script.said(_LONG_CONVERSATION)
        messages: list[Message] = []
        while len(messages) < self._rival.messages - 3:
            said = next(turns)
            messages += [self._words.message(said.new_tokens), answered(self._words.text(said.stand_in))]
        found = LongChat(len(messages) + 3)
        pids = await asyncio.to_thread(processes.ids, self._rival.url, self._rival.pid)
        try:
            for number in range(1 + NUM_LONG_REQUESTS):
                messages.append(self._words.message(next(turns).new_tokens))
                before = processes.cpu_seconds(pids)
                answer = await self._asked(messages)
                await clock.sleep(SETTLE_SECONDS)
                after = processes.cpu_seconds(pids)
                messages.append(answered(answer.text))
                if number == 0:  # which opened its session
                    continue
                found.cpu_seconds += [] if before is None or after is None else [after - before]
                found.session_states += [answer.session.state] if answer.session else []
        except RivalFailed as error:
            found.error = str(error)
        return found

    async def _played(self, said: Said) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "num_sent_tokens": self._history_length,
            "num_new_tokens": self._words.num_new(self._messages[-1]["content"], is_first=len(self._messages) == 1),
        }
        try:
            played = self._facts(await self._asked(self._messages))
        except RivalFailed as error:
            played = {"error": str(error)}
        return {**facts, **played, "rss_bytes": await self.rss_bytes()}

    async def _asked(self, messages: Sequence[Message]) -> ChatAnswer:
        answer = await self._chats.ask(messages, self._settings.max_tokens)
        check_length(answer.num_tokens, self._settings.max_tokens)
        return answer

    def _facts(self, answer: ChatAnswer) -> dict[str, Any]:
        self._said_back = answer.text
        found: dict[str, Any] = {
            "num_tokens_out": answer.num_tokens,
            "time_to_first_token_seconds": answer.first_at - answer.sent_at if answer.first_at else None,
            "total_seconds": answer.done_at - answer.sent_at,
            "client_seconds": answer.sent_at - answer.asked_at,
            "num_cached_tokens": answer.num_cached_tokens,
        }
        if answer.session is not None:
            found |= {
                "session_state": answer.session.state,
                "session_why": answer.session.why,
                "num_appended_tokens": answer.session.num_appended,
            }
        if answer.num_prompt_tokens is not None and answer.num_tokens is not None:
            length = answer.num_prompt_tokens + answer.num_tokens
            found |= {"num_sent_tokens": answer.num_prompt_tokens, "history_length": length}
            if weight := self._kv_bytes_per_token:
                found["kv_computed_bytes"] = min(length, self._rival.kv or length) * weight
        return found
