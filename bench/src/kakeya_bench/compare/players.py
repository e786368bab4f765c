"""Who plays the conversation: the runtime, which is sent what is new, and servers that are sent all of it."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any

from kakeya import AsyncClient, KakeyaError
from kakeya_bench.compare import processes
from kakeya_bench.compare.completions import Completions, RivalFailed, check_length
from kakeya_bench.compare.rival import RUNTIME, Rival
from kakeya_bench.compare.settings import CompareSettings
from kakeya_bench.compare.turns import LongChat, PlayedTurn, Said, Script
from kakeya_bench.conversation import clock
from kakeya_bench.conversation.dialogue import Dialogue, replay
from kakeya_bench.conversation.failure import describe
from kakeya_bench.conversation.runtime import Workers


class Player(ABC):
    """Plays one turn after the other, and remembers the conversation.

    Attributes:
        answer: to the turn that was played last; None where it failed, or its ids are not known.
    """

    def __init__(self, name: str, settings: CompareSettings) -> None:
        self.name = name
        self.answer: list[int] | None = None
        self._settings = settings
        self._history: list[int] = []
        self._history_length = 0  # with what was dropped

    def plays(self, index: int) -> bool:
        """Whether it plays that turn."""
        return True

    def hear(self, said: Said) -> None:
        """A turn begins."""
        self.answer = None
        self._remember(said.new_tokens)

    async def play(self, said: Said, place: int, start: float) -> PlayedTurn:
        """The turn. `start` is when the first one began, by `clock.now`."""
        facts = {"started_seconds": clock.now() - start, "history_length": self._history_length}
        return PlayedTurn(player=self.name, index=said.index, place=place, **facts | await self._played(said))

    def settle(self, said: Said, runtime_answer: Sequence[int]) -> None:
        """The turn is over."""
        self._remember(self.answer or said.stand_in)

    @abstractmethod
    async def warm_up(self, new_tokens: Sequence[int]) -> None:
        """A turn of another conversation."""

    @abstractmethod
    async def rss_bytes(self) -> int | None:
        """Resident memory of its server; None where it is not known."""

    async def long_chat(self, script: Script) -> LongChat | None:
        """What a long chat costs its server, where that was asked for. What fails is in what it returns."""
        return None

    @abstractmethod
    async def _played(self, said: Said) -> dict[str, Any]:
        """Fields of the PlayedTurn."""

    def _remember(self, tokens: Sequence[int]) -> None:
        self._history += tokens
        self._history_length += len(tokens)


class RuntimePlayer(Player):
    """Plays every turn in one session, and goes on in another where that is lost."""

    def __init__(self, client: AsyncClient, script: Script, workers: Workers) -> None:
        super().__init__(RUNTIME, script.settings)
        self.dialogue = Dialogue(client, script, repeat(0), label="kakeya bench")
        self._warming_up = Dialogue(client, script, repeat(0), label="kakeya bench, warm-up")
        self._workers = workers

    async def warm_up(self, new_tokens: Sequence[int]) -> None:
        """As in `Player`, in a session of its own. Raises KakeyaError."""
        async with await self._warming_up.open():
            await self._warming_up.answer(list(new_tokens))

    async def rss_bytes(self) -> int | None:
        """As in `Player`: of the session's worker, as its router tells it. Raises KakeyaError."""
        session = self.dialogue.session or await self.dialogue.open()
        status = await self._workers.find((await session.info()).worker)
        return status.rss_bytes or None if status else None

    async def _played(self, said: Said) -> dict[str, Any]:
        facts: dict[str, Any] = {"num_sent_tokens": len(said.new_tokens)}
        try:
            return facts | await self._turn(said)
        except KakeyaError as error:
            with suppress(KakeyaError):  # the session may be lost; else it expires
                await self.dialogue.close()
            self.dialogue.session = None
            return facts | {"error": describe(error)}

    async def _turn(self, said: Said) -> dict[str, Any]:
        if self.dialogue.session is None:  # another one is brought to where the lost one was, which is not measured
            before = self._history[: -len(said.new_tokens)]
            await replay(await self.dialogue.open(), before, timeout_seconds=self._settings.timeout_s)
        answer = await self.dialogue.answer(said.new_tokens)
        rss_bytes = await self.rss_bytes()
        self.answer = list(answer.token_ids)
        return {
            "history_length": answer.done.history_length,
            "num_tokens_out": len(answer.token_ids),
            "time_to_first_token_seconds": answer.time_to_first_token_seconds,
            "total_seconds": answer.wall_seconds,
            "kv_live_bytes": answer.done.kv_live_bytes,
            "rss_bytes": rss_bytes,
        }


class RivalPlayer(Player):
    """Plays every turn with its own answers in its history, or the marks with the runtime's.

    Args:
        kv_bytes_per_token: what a token's KV weighs in f16; None where that is not known.
    """

    def __init__(self, rival: Rival, settings: CompareSettings, *, kv_bytes_per_token: int | None) -> None:
        super().__init__(rival.name, settings)
        self._rival = rival
        self._kv_bytes_per_token = kv_bytes_per_token
        self._num_dropped_tokens = 0
        self._completions = Completions(rival, settings.timeout_s)

    def plays(self, index: int) -> bool:
        return self._rival.plays_every_turn or index in self._settings.marks

    def hear(self, said: Said) -> None:
        """As in `Player`. The new tokens are never dropped."""
        num_more = len(said.new_tokens) + self._settings.max_tokens
        self._num_dropped_tokens = self._rival.num_to_drop(len(self._history), num_more)
        del self._history[self._rival.keep : self._rival.keep + self._num_dropped_tokens]
        super().hear(said)

    def settle(self, said: Said, runtime_answer: Sequence[int]) -> None:
        if not self._rival.plays_every_turn:
            self.answer = list(runtime_answer)
        super().settle(said, runtime_answer)

    async def warm_up(self, new_tokens: Sequence[int]) -> None:
        """As in `Player`. What fails will fail again, where it is counted."""
        with suppress(RivalFailed):
            await self._completions.ask(new_tokens, self._settings.max_tokens)

    async def rss_bytes(self) -> int | None:
        """As in `Player`: of its processes."""
        return await asyncio.to_thread(processes.rss_bytes, self._rival.url, self._rival.pid)

    async def _played(self, said: Said) -> dict[str, Any]:
        facts = {"num_sent_tokens": len(self._history), "num_dropped_tokens": self._num_dropped_tokens}
        try:
            played = await self._turn()
        except RivalFailed as error:
            played = {"error": str(error)}
        return {**facts, **played, "rss_bytes": await self.rss_bytes()}

    async def _turn(self) -> dict[str, Any]:
        max_tokens = self._settings.max_tokens
        answer, began = await self._completions.ask(self._history, max_tokens)
        check_length(answer.num_tokens, max_tokens)
        self.answer = answer.token_ids
        num_tokens = len(self._history) + max_tokens
        weight = self._kv_bytes_per_token
        return {
            "history_length": self._history_length + max_tokens,
            "num_tokens_out": answer.num_tokens,
            "knows_answer": answer.token_ids is not None,
            "time_to_first_token_seconds": answer.first_at - began if answer.first_at else None,
            "total_seconds": answer.done_at - began,
            "num_cached_tokens": answer.num_cached_tokens,
            "kv_computed_bytes": min(num_tokens, self._rival.kv or num_tokens) * weight if weight else None,
        }
