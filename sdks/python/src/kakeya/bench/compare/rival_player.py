"""A server without sessions as a player: it is sent the whole conversation, or what fits it."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kakeya.bench.compare.answer import Answer, RivalFailed
from kakeya.bench.compare.completions import Completions
from kakeya.bench.compare.history import History
from kakeya.bench.compare.memory import ServerMemory
from kakeya.bench.compare.options import Options
from kakeya.bench.compare.played_turn import PlayedTurn
from kakeya.bench.compare.rival import Rival
from kakeya.bench.compare.said import Said


class RivalPlayer:
    """Plays every turn with its own answers in its history, or the marks with the runtime's.

    Args:
        kv_bytes_per_token: what a token's KV weighs in f16; None where that is not known.
    """

    def __init__(self, rival: Rival, options: Options, *, kv_bytes_per_token: int | None) -> None:
        self.rival = rival
        self.name = rival.name
        self._options = options
        self._kv_bytes_per_token = kv_bytes_per_token
        self._history = History(rival.context, keep=rival.keep, drop=rival.drop)
        self._num_dropped_tokens = 0
        self._answer: list[int] | None = None
        self._completions = Completions(rival, options.timeout_seconds)
        self._memory = ServerMemory(rival.url, rival.pid)

    async def warm_up(self, new_tokens: Sequence[int]) -> None:
        """A turn of another conversation. One that fails will fail again, where it is counted."""
        with suppress(RivalFailed):
            await self._completions.ask(new_tokens, self._options.max_tokens)

    def plays(self, index: int) -> bool:
        """Whether it plays that turn."""
        return self.rival.plays_every_turn or index in self._options.marks

    def hear(self, said: Said) -> None:
        """A turn begins."""
        self._num_dropped_tokens = self._history.hear(said.new_tokens, self._options.max_tokens)
        self._answer = None

    async def play(self, said: Said, place: int, start: float) -> PlayedTurn:
        """The turn. `start` is when the first one began, by time.perf_counter."""
        began = time.perf_counter()
        max_tokens = self._options.max_tokens
        played: dict[str, Any] = {"history_length": self._history.length}
        try:
            answer, began = await self._completions.ask(self._history.tokens, max_tokens)
            if answer.num_tokens not in (None, max_tokens):
                raise RivalFailed(
                    f"its answer has a length of {answer.num_tokens}, not {max_tokens}: it must not end by itself "
                    "(ignore_eos, or logit_bias by --fields)"
                )
            self._answer = answer.token_ids
            played = self._figures(answer, began)
        except RivalFailed as error:
            played["error"] = str(error)
        return PlayedTurn(
            player=self.name,
            index=said.index,
            place=place,
            started_seconds=began - start,
            num_sent_tokens=len(self._history.tokens),
            num_dropped_tokens=self._num_dropped_tokens,
            rss_bytes=await self.rss_bytes(),
            **played,
        )

    def settle(self, said: Said, runtime_answer: Sequence[int]) -> None:
        """The turn is over."""
        self._history.say((self._answer or said.stand_in) if self.rival.plays_every_turn else runtime_answer)

    async def rss_bytes(self) -> int | None:
        """Of its processes; None where they are not known."""
        return await asyncio.to_thread(self._memory.read)

    def _figures(self, answer: Answer, began: float) -> dict[str, Any]:
        max_tokens = self._options.max_tokens
        return {
            "history_length": self._history.length + max_tokens,
            "num_tokens_out": answer.num_tokens,
            "knows_answer": answer.token_ids is not None,
            "time_to_first_token_seconds": answer.first_at - began if answer.first_at else None,
            "total_seconds": answer.done_at - began,
            "num_cached_tokens": answer.num_cached_tokens,
            "kv_computed_bytes": self._kv_bytes(len(self._history.tokens) + max_tokens),
        }

    def _kv_bytes(self, num_tokens: int) -> int | None:
        if self._kv_bytes_per_token is None:
            return None
        return min(num_tokens, self.rival.kv_tokens or num_tokens) * self._kv_bytes_per_token
