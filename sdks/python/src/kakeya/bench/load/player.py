"""One user of a level, turn after turn with pauses for thought."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from kakeya import AsyncClient, AsyncSession, GenerateResult, KakeyaError
from kakeya.bench.load.failure import describe
from kakeya.bench.load.options import Options
from kakeya.bench.load.period import Period
from kakeya.bench.load.think_times import ThinkTimes
from kakeya.bench.load.timed_turn import TimedTurn
from kakeya.bench.prompts import NoPrompts, Prompts
from kakeya.bench.speech import Speech
from kakeya.errors import InvariantViolated, SessionClosed, SessionNotFound, WorkerLost
from kakeya.text.tokenizer_error import TokenizerError

ERROR_PAUSE_SECONDS = 1.0
"""At least so long after a turn that failed: who does not think would else do nothing but fail."""
GRACE_SECONDS = 1.0
"""For a session that is being opened when a signal comes; one that waits in a queue for longer gives up its place."""
_GONE = (SessionNotFound, SessionClosed, WorkerLost, InvariantViolated)


@dataclass
class _Conversation:
    """A session, and what is said in it."""

    session: AsyncSession
    prompts: Prompts
    last_token_id: int | None = None


class Player:
    """Plays the turns of one session, of another one when it is lost.

    Args:
        number: which of the level's sessions. It says the same at each level, and thinks as long.
        num_sessions: of the level.
    """

    def __init__(self, number: int, num_sessions: int, client: AsyncClient, options: Options, said: Speech) -> None:
        self._number = number
        self._client = client
        self._options = options
        self._said = said
        # A session that replaces a lost one says something else.
        self._numbers = count(number, num_sessions)
        # The first turns are spread over the time of a thought, so that the sessions do not start in step.
        self._head_start_seconds = options.think_time_seconds * number / num_sessions
        self._thoughts = ThinkTimes(options.think_time_seconds, seed=options.conversation.seed, conversation=number)
        self._conversation: _Conversation | None = None

    @property
    def session(self) -> AsyncSession | None:
        """The one that is held; None before the first, and once it is lost."""
        return self._conversation.session if self._conversation else None

    async def open(self) -> None:
        """Opens the session. Raises KakeyaError, NoPrompts."""
        await self._opened()

    async def close(self) -> str:
        """Closes the session, if there is one. Returns why that cannot be done, "" where it can."""
        try:
            if self.session is not None:
                await self.session.close()
        except KakeyaError as error:
            return describe(error)
        return ""

    async def play(self, period: Period, on_turn: Callable[[TimedTurn], None]) -> None:
        """All turns that begin in the period; `on_turn` gets each one when it is over."""
        due = period.start + self._head_start_seconds
        for index in count(1):
            if due >= period.end:
                return
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            turn = await self._turn(index, period)
            if turn is None:
                return
            on_turn(turn)
            pause_seconds = self._thoughts.next_seconds()
            due = time.perf_counter() + (max(pause_seconds, ERROR_PAUSE_SECONDS) if turn.error else pause_seconds)

    async def _opened(self) -> _Conversation:
        """A conversation that has not begun.

        Where it is cancelled, the runtime may open the session all the same: then it is there soon, and is closed.
        """
        opening = asyncio.create_task(self._open())
        try:
            await asyncio.wait({opening})
        except asyncio.CancelledError:
            await asyncio.wait({opening}, timeout=GRACE_SECONDS)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            raise
        return opening.result()

    async def _open(self) -> _Conversation:
        asked = self._options.conversation
        prompts = self._said.prompts(next(self._numbers))
        session = await self._client.create_session(
            eos_token_ids=self._said.eos_token_ids, label="kakeya bench load", model=asked.model, sink=asked.sink,
            window=asked.window, timeout_seconds=asked.timeout_seconds,
        )  # fmt: skip
        self._conversation = _Conversation(session, prompts)
        return self._conversation

    async def _turn(self, index: int, period: Period) -> TimedTurn | None:
        """None where it would begin too late, since there was another session to be opened first."""
        began = time.perf_counter()
        token_ids: list[int] = []
        try:
            conversation = self._conversation or await self._opened()
            token_ids = conversation.prompts.next_turn(conversation.last_token_id)
            began = time.perf_counter()  # another session and the wording of a message are none of the turn's time
            if began >= period.end:
                return None
            answer = await self._answer(conversation, token_ids, began)
        except (KakeyaError, TokenizerError, NoPrompts) as error:
            self._forget(error)
            answer = {"error": describe(error)}
        return TimedTurn(
            session=self._number,
            index=index,
            started_seconds=began - period.start,
            wall_seconds=time.perf_counter() - began,
            is_warm_up=began < period.measured_from,
            num_new_tokens=len(token_ids),
            **answer,
        )

    async def _answer(self, conversation: _Conversation, token_ids: list[int], began: float) -> dict[str, Any]:
        """The fields of a turn that say what came back. Raises KakeyaError."""
        asked = self._options.conversation
        came: list[float] = []  # when each token did
        conversation.last_token_id = None
        generation = conversation.session.turn(
            token_ids, max_tokens=asked.max_tokens, timeout_seconds=asked.timeout_seconds
        )
        async with generation:
            async for token_id in generation:
                came.append(time.perf_counter())
                conversation.last_token_id = token_id
        done = generation.done
        assert isinstance(done, GenerateResult)  # noqa: S101  # else it had raised
        return {
            "num_tokens_out": len(came),
            "history_length": done.history_length,
            "time_to_first_token_seconds": came[0] - began if came else None,
            "time_per_output_token_seconds": (came[-1] - came[0]) / (len(came) - 1) if len(came) > 1 else None,
            "kv_live_bytes": done.kv_live_bytes,
        }

    def _forget(self, error: Exception) -> None:
        """What is not known any more after a turn that failed: how the answer ended, or even the session."""
        if isinstance(error, _GONE):
            self._conversation = None
        elif self._conversation is not None:
            self._conversation.last_token_id = None
