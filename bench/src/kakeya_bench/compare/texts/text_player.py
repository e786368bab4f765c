"""A client of texts: what it sends each turn is a matter of its API."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kakeya_bench.compare import processes
from kakeya_bench.compare.completions import RivalFailed
from kakeya_bench.compare.players import Player
from kakeya_bench.compare.rival import Rival
from kakeya_bench.compare.settings import CompareSettings
from kakeya_bench.compare.texts.text_answer import TextAnswer
from kakeya_bench.compare.texts.text_api import TextApi
from kakeya_bench.compare.texts.wording import Message, Wording, answered
from kakeya_bench.compare.turns import LongChat, Said, Script
from kakeya_bench.conversation import clock

NUM_LONG_REQUESTS = 11
SETTLE_SECONDS = 0.1
"""What goes on behind an answer belongs to the request before it."""
_LONG_CONVERSATION = 2  # another one than those that are played, or that all warm up with


class TextPlayer(Player):
    """Plays every turn as a talk.

    Args:
        api: entered.
        place: among the players of texts. The first message has its words in another order for each of them: a server
            that finds conversations by what was said would have two players go on in one session.
        kv_bytes_per_token: what a token's KV weighs in f16; None where that is not known.
    """

    def __init__(
        self,
        api: TextApi,
        rival: Rival,
        settings: CompareSettings,
        words: Wording,
        *,
        place: int,
        kv_bytes_per_token: int | None,
    ) -> None:
        super().__init__(rival.name, settings)
        self._api = api
        self._talk = api.talk()
        self._rival = rival
        self._words = words
        self._place = place
        self._kv_bytes_per_token = kv_bytes_per_token
        self._num_new_tokens = 0
        self._is_answered = False

    def hear(self, said: Said) -> None:
        super().hear(said)
        message = self._message(said)
        self._num_new_tokens = self._words.num_new(message["content"], is_first=said.index == 1)
        self._is_answered = False
        self._talk.say(message)

    def settle(self, said: Said, runtime_answer: Sequence[int]) -> None:
        """As in `Player`. Where the turn failed, something else stands for its answer."""
        super().settle(said, runtime_answer)
        if not self._is_answered:
            self._talk.say(answered(self._words.text(said.stand_in)))

    async def warm_up(self, new_tokens: Sequence[int]) -> None:
        """As in `Player`. What fails will fail again, where it is counted."""
        talk = self._api.talk()
        talk.say(self._words.message(new_tokens))
        with suppress(RivalFailed):
            await talk.ask(self._settings.max_tokens)

    async def rss_bytes(self) -> int | None:
        """As in `Player`: of its processes."""
        return await asyncio.to_thread(processes.rss_bytes, self._rival.url, self._rival.pid)

    async def long_chat(self, script: Script) -> LongChat | None:
        """As in `Player`: in a talk that is sent for the first time with two messages less."""
        if self._rival.messages is None:
            return None
        turns, talk, num_messages = script.said(_LONG_CONVERSATION), self._api.talk(), 0
        while num_messages < self._rival.messages - 3:
            said = next(turns)
            talk.say(self._message(said), answered(self._words.text(said.stand_in)))
            num_messages += 2
        found = LongChat(num_messages + 3)
        pids = await asyncio.to_thread(processes.ids, self._rival.url, self._rival.pid)
        try:
            for number in range(1 + NUM_LONG_REQUESTS):
                talk.say(self._message(next(turns)))
                before = processes.cpu_seconds(pids)
                answer = await talk.ask(self._settings.max_tokens)
                await clock.sleep(SETTLE_SECONDS)
                after = processes.cpu_seconds(pids)
                if number == 0:  # which opened its session
                    continue
                found.cpu_seconds += [] if before is None or after is None else [after - before]
                found.session_states += [answer.session.state] if answer.session else []
        except RivalFailed as error:
            found.error = str(error)
        return found

    def _message(self, said: Said) -> Message:
        tokens, place = said.new_tokens, self._place % len(said.new_tokens) if said.index == 1 else 0
        return self._words.message([*tokens[place:], *tokens[:place]])

    async def _played(self, said: Said) -> dict[str, Any]:
        sends_all = self._rival.sends_all
        facts: dict[str, Any] = {
            "num_sent_tokens": self._history_length if sends_all else self._num_new_tokens,
            "num_new_tokens": self._num_new_tokens,
        }
        try:
            answer = await self._talk.ask(self._settings.max_tokens)
            self._is_answered = True
            played = self._facts(answer)
        except RivalFailed as error:
            played = {"error": str(error)}
        return {**facts, **played, "rss_bytes": await self.rss_bytes()}

    def _facts(self, answer: TextAnswer) -> dict[str, Any]:
        found: dict[str, Any] = {
            "num_tokens_out": answer.num_tokens,
            "time_to_first_token_seconds": answer.first_at - answer.sent_at if answer.first_at else None,
            "total_seconds": answer.done_at - answer.sent_at,
            "client_seconds": answer.sent_at - answer.asked_at,
            "num_cached_tokens": answer.num_cached_tokens,
            "num_appended_tokens": answer.num_appended_tokens,
        }
        if answer.session is not None:
            found |= {"session_state": answer.session.state, "session_why": answer.session.why}
        if answer.num_prompt_tokens is not None and answer.num_tokens is not None:
            length = answer.num_prompt_tokens + answer.num_tokens
            found["history_length"] = length
            if self._rival.sends_all:
                found["num_sent_tokens"] = answer.num_prompt_tokens
            if weight := self._kv_bytes_per_token:
                found["kv_computed_bytes"] = min(length, self._rival.kv or length) * weight
        return found
